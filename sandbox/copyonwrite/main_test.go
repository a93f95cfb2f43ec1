package copyonwrite_test

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if f := flag.Lookup("rapid.checks"); f != nil {
		_ = f.Value.Set("25") // -rapid.checks asks for more
	}
	os.Exit(m.Run())
}
