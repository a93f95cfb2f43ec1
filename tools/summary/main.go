// Command summary reads the JSON logs of `go test -json`, one for each leg of a
// test run, and says what ran: failures with their output, what was skipped and
// why, whether every suite that may not be skipped passed, and a last line
// "N passed, N failed, N skipped".
//
//	summary [-required FILE] LEG=LOG…
//
// A line of the file is "LEG PACKAGE TESTS": at least one test of that leg and
// package whose whole name matches the regular expression TESTS must have
// passed, and none may have been skipped. PACKAGE is relative to the module.
// Lines for legs that are not given are left out; # begins a comment. The exit
// code is 1 when something failed or a required suite did not pass.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
)

const module = "github.com/cleveragents/agents"

// event is what test2json writes.
type event struct {
	Action  string
	Package string
	Test    string
	Elapsed float64
	Output  string
}

// key names a test, or with an empty test a whole package.
type key struct{ pkg, test string }

// leg is what one run of tests came to.
type leg struct {
	name    string
	result  map[key]string // pass, fail, skip
	output  map[key][]string
	seconds map[string]float64 // by package
	loose   []string           // what was no JSON: complaints of the go command
}

func main() {
	required := flag.String("required", "", "file that names the suites which may not be skipped")
	flag.Parse()
	ok, err := run(*required, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "summary:", err)
		os.Exit(2)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(required string, args []string) (bool, error) {
	var legs []*leg
	for _, arg := range args {
		name, file, ok := strings.Cut(arg, "=")
		if !ok {
			return false, fmt.Errorf("%q: want LEG=LOG", arg)
		}
		l, err := read(name, file)
		if err != nil {
			return false, err
		}
		legs = append(legs, l)
	}
	var unmet []string
	if required != "" {
		var err error
		if unmet, err = check(required, legs); err != nil {
			return false, err
		}
	}
	return report(legs, unmet), nil
}

func read(name, file string) (*leg, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l := &leg{name: name, result: map[key]string{}, output: map[key][]string{}, seconds: map[string]float64{}}
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			l.add(line)
		}
		if err != nil {
			return l, nil
		}
	}
}

func (l *leg) add(line []byte) {
	var e event
	if err := json.Unmarshal(line, &e); err != nil {
		l.loose = append(l.loose, string(line))
		return
	}
	k := key{strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/"), e.Test}
	switch e.Action {
	case "output":
		l.output[k] = append(l.output[k], e.Output)
	case "build-output":
		l.loose = append(l.loose, e.Output)
	case "pass", "fail", "skip":
		l.result[k] = e.Action
		if e.Test == "" {
			l.seconds[k.pkg] = e.Elapsed
		}
	}
}

// failures lists what failed, innermost tests first of all; a package counts
// only when none of its tests failed, as when it does not build.
func (l *leg) failures() []key {
	failed := map[string]bool{}
	var out []key
	for k, r := range l.result {
		if r != "fail" || k.test == "" {
			continue
		}
		failed[k.pkg] = true
		if !l.hasInner(k, "fail") {
			out = append(out, k)
		}
	}
	for k, r := range l.result {
		if r == "fail" && k.test == "" && !failed[k.pkg] {
			out = append(out, k)
		}
	}
	return sorted(out)
}

// hasInner reports whether a test below k came to that result.
func (l *leg) hasInner(k key, result string) bool {
	for o, r := range l.result {
		if r == result && o.pkg == k.pkg && strings.HasPrefix(o.test, k.test+"/") {
			return true
		}
	}
	return false
}

func (l *leg) count(result string) int {
	n := 0
	for k, r := range l.result {
		if r == result && k.test != "" {
			n++
		}
	}
	return n
}

func (l *leg) skipped() []key {
	var out []key
	for k, r := range l.result {
		if r == "skip" && k.test != "" {
			out = append(out, k)
		}
	}
	return sorted(out)
}

func sorted(keys []key) []key {
	slices.SortFunc(keys, func(a, b key) int { return strings.Compare(a.pkg+" "+a.test, b.pkg+" "+b.test) })
	return keys
}

// check returns a sentence for each required suite that did not pass.
func check(file string, legs []*leg) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var unmet []string
	for _, line := range strings.Split(string(data), "\n") {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("%s: %q: want LEG PACKAGE TESTS", file, line)
		}
		tests, err := regexp.Compile("^(?:" + fields[2] + ")$")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, l := range legs {
			if l.name == fields[0] {
				unmet = append(unmet, l.require(fields[1], fields[2], tests)...)
			}
		}
	}
	return unmet, nil
}

// require returns what is wrong with the tests of a package that have to pass.
// What is skipped inside of one counts too.
func (l *leg) require(pkg, named string, tests *regexp.Regexp) []string {
	passed := 0
	var wrong []string
	for k, r := range l.result {
		outer, _, _ := strings.Cut(k.test, "/")
		if orRoot(k.pkg) != pkg || k.test == "" || !tests.MatchString(k.test) && !tests.MatchString(outer) {
			continue
		}
		switch r {
		case "pass":
			passed++
		case "skip":
			wrong = append(wrong, fmt.Sprintf("%s: %s %s was skipped and may not be", l.name, pkg, k.test))
		}
	}
	if passed == 0 {
		wrong = append(wrong, fmt.Sprintf("%s: %s %s did not pass", l.name, pkg, named))
	}
	slices.Sort(wrong)
	return wrong
}

func report(legs []*leg, unmet []string) bool {
	var passed, failed, skipped int
	for _, l := range legs {
		failures := l.failures()
		for _, k := range failures {
			fmt.Printf("\nFAIL %s: %s %s\n%s", l.name, orRoot(k.pkg), k.test, l.tail(k))
		}
		passed, failed, skipped = passed+l.count("pass"), failed+len(failures), skipped+l.count("skip")
	}
	for _, l := range legs {
		for _, k := range l.skipped() {
			fmt.Printf("skip %s: %s %s: %s\n", l.name, orRoot(k.pkg), k.test, l.reason(k))
		}
	}
	fmt.Println()
	for _, l := range legs {
		fmt.Printf("%-10s %5d passed %4d failed %4d skipped in %d packages; slowest: %s\n", l.name,
			l.count("pass"), len(l.failures()), l.count("skip"), len(l.seconds), l.slowest())
		if len(l.result) == 0 {
			fmt.Printf("%s: nothing ran\n%s", l.name, strings.Join(l.loose, ""))
			failed++
		}
	}
	for _, u := range unmet {
		fmt.Println("required:", u)
	}
	failed += len(unmet)
	fmt.Printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped)
	return failed == 0
}

// tail is the end of what a test printed; for a package that failed without a
// test, what the go command said too, and which tests never ended.
func (l *leg) tail(k key) string {
	lines := l.output[k]
	if k.test == "" {
		lines = slices.Concat(l.loose, lines, l.unended(k.pkg))
	}
	const most = 60
	if len(lines) > most {
		lines = append([]string{fmt.Sprintf("… %d lines\n", len(lines)-most)}, lines[len(lines)-most:]...)
	}
	return strings.Join(lines, "")
}

// unended has a line for each test of a package that came to no result, as
// when time ran out.
func (l *leg) unended(pkg string) []string {
	var lines []string
	for k := range l.output {
		if _, ended := l.result[k]; !ended && k.pkg == pkg && k.test != "" {
			lines = append(lines, "did not end: "+k.test+"\n")
		}
	}
	slices.Sort(lines)
	return lines
}

// reason is what a skipped test said.
func (l *leg) reason(k key) string {
	for _, line := range l.output[k] {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			return line
		}
	}
	return "no reason given"
}

func (l *leg) slowest() string {
	pkgs := slices.SortedFunc(maps.Keys(l.seconds), func(a, b string) int {
		return int(1000 * (l.seconds[b] - l.seconds[a]))
	})
	var out []string
	for _, p := range pkgs[:min(3, len(pkgs))] {
		out = append(out, fmt.Sprintf("%s %.0f s", orRoot(p), l.seconds[p]))
	}
	return strings.Join(out, ", ")
}

func orRoot(pkg string) string {
	if pkg == "" {
		return "."
	}
	return pkg
}
