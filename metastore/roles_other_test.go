//go:build !unix

package metastore_test

import "context"

func roles() map[string]func(context.Context, string) error {
	return map[string]func(context.Context, string) error{"writer": writeAlongOthers}
}
