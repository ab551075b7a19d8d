package documents_test

import (
	"cmp"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

// checkedBy has the programs whose own tests run the documents' calls of them, or parse the flags
// as the program does.
var checkedBy = map[string]string{
	"redlock":              "cmd/redlock/documents_unix_test.go",
	"go run ./cmd/redlock": "cmd/redlock/documents_unix_test.go",
	"sh -c":                "cmd/redlock/documents_unix_test.go",
	"curl":                 "cmd/redlock/documents_unix_test.go",
	"go -C bench run .":    "bench/options_test.go",
	"go -C chaos run .":    "chaos/main_test.go",
}

// notRun are the commands that no test runs or takes apart, and why.
var notRun = map[string]string{
	"head -c 32 /dev/urandom":   "cmd/redlock/serve_unix_test.go makes a token by it",
	"sha256sum < billing.token": "the same",

	"export REDLOCK_NODES=redis://127.0.0.1:7001,redis://127.0.0.1:7002,redis://127.0.0.1:7003,redis://127.0.0.1:7004,redis://127.0.0.1:7005": "cmd/redlock compares it with what redlock nodes prints",
	".ci/run":                           "runs the tests, and is what CI runs",
	"docker-compose up -d":              ".ci/run has it",
	"docker-compose down -v":            ".ci/run has it",
	"docker compose":                    "is docker-compose of another version",
	"examples/hold/hold.py nightly 10":  "examples/hold runs the program with other arguments",
	"go install ./cmd/redlock":          "would change this machine; TestReadersGetTheModule does it elsewhere",
	"examples/serve/lock.py nightly 10": "examples/serve runs the program with other arguments",
}

// TestCommandsOfDocumentsAreThere: what a document tells readers to type is checked as far as it can
// be without running it: packages, targets and programs exist, tests match, flags and variables are
// known. What is known in none of these ways is red, so that nothing is told that no test has seen.
func TestCommandsOfDocumentsAreThere(t *testing.T) {
	t.Parallel()
	left := map[string]bool{}
	for command := range notRun {
		left[command] = true
	}
	for _, c := range documents.Commands(t) {
		text := strings.Join(c.Words(), " ")
		switch _, not := notRun[text]; {
		case not:
			delete(left, text)
		case isChecked(c), isForReadersModule(c), c.Words()[0] == "apt-get": // which would change this machine
		case c.Words()[0] == "go":
			assert.Empty(t, wrongWithGo(t, c), c.Place())
		case c.Words()[0] == "make":
			assert.Empty(t, wrongWithMake(t, c), c.Place())
		case documents.RunElsewhere[c.Document] != "":
			assert.Contains(t, read(t, documents.RunElsewhere[c.Document]), path.Base(c.Document), c.Place())
		default:
			assert.Fail(t, "no test knows this command; run it in one, or add it to notRun with the reason", c.Place())
		}
	}
	assert.Empty(t, left, "no document has these commands any more")
	for _, file := range checkedBy {
		assert.Contains(t, read(t, file), "documents.Commands(t)", file)
	}
}

// TestCIRunsWhatItIsSaidToRun: the commands of the front page, and those that no other test runs
// because the gate does.
func TestCIRunsWhatItIsSaidToRun(t *testing.T) {
	t.Parallel()
	gate := read(t, ".ci/run")
	for command, why := range notRun {
		if strings.HasPrefix(why, ".ci/run") {
			assert.Contains(t, gate, command)
		}
	}
	for _, command := range []string{"go run ./cmd/redlock demo", "go test ./..."} {
		assert.Contains(t, read(t, "README.md"), "\n"+command+" ")
		assert.Contains(t, gate, command)
	}
	assert.Contains(t, read(t, ".github/workflows/ci.yml"), " .ci/run\n")
}

func isChecked(c documents.Command) bool {
	for program := range checkedBy {
		if _, yes := c.Calls(program); yes {
			return true
		}
	}
	return false
}

// flagsOfGo are those of go test that the documents may use, besides those that name tests.
var flagsOfGo = []string{"-v", "-race", "-short", "-all", "-benchtime", "-count", "-timeout", "-o"}

// wrongWithGo returns what is wrong with a go command, or nothing.
func wrongWithGo(t *testing.T, c documents.Command) string {
	words, dir := c.Words()[1:], c.Dir()
	if words[0] == "-C" {
		dir, words = filepath.Join(dir, words[1]), words[2:]
	}
	dir = filepath.Join(documents.Root(t), dir)
	if verb := words[0]; !slices.Contains([]string{"test", "run", "doc", "build"}, verb) {
		return "go " + verb + " is not among the commands that are checked"
	}
	sources := "" // of the first package that is named, or of the folder
	for _, word := range words[1:] {
		if word != "." && !strings.HasPrefix(word, "./") {
			continue
		}
		at := filepath.Join(dir, strings.TrimSuffix(word, "..."))
		if _, err := os.Stat(at); err != nil {
			return err.Error()
		}
		there := sourcesIn(at)
		if there == "" && !strings.HasSuffix(word, "...") {
			return "there is no package " + word
		}
		sources = cmp.Or(sources, there)
	}
	sources = cmp.Or(sources, sourcesIn(dir))
	for i, word := range words[1:] {
		name, value, joined := strings.Cut(word, "=")
		switch {
		case !strings.HasPrefix(name, "-") || name == "-":
		case name == "-run" || name == "-bench" || name == "-skip":
			if !joined && i+2 < len(words) {
				value = words[i+2]
			}
			if value != "-" && !matchesATest(value, sources) { // "-run -" is the way to run none
				return "no test matches " + value
			}
		case !slices.Contains(flagsOfGo, name) && !regexp.MustCompile(`\.\w+\((?:&[\w.]+, )?"`+strings.TrimLeft(name, "-")+`"`).MatchString(sources):
			return "there is no flag " + name
		}
	}
	return ""
}

// sourcesIn returns the text of a folder's Go files.
func sourcesIn(folder string) string {
	var all strings.Builder
	paths, _ := filepath.Glob(filepath.Join(folder, "*.go"))
	for _, path := range paths {
		text, _ := os.ReadFile(path)
		all.Write(text)
	}
	return all.String()
}

func matchesATest(pattern, sources string) bool {
	matches, err := regexp.Compile(pattern)
	if err != nil {
		return false
	}
	for _, f := range regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Example|Fuzz)\w*)\(`).FindAllStringSubmatch(sources, -1) {
		if matches.MatchString(f[1]) {
			return true
		}
	}
	return false
}

// wrongWithMake returns what is wrong with a call of make, or nothing.
func wrongWithMake(t *testing.T, c documents.Command) string {
	makefile := read(t, "Makefile")
	for _, word := range c.Words()[1:] {
		pattern := `(?m)^` + word + `:`
		if name, _, assigned := strings.Cut(word, "="); assigned {
			pattern = `(?m)^` + name + `\s*\?=`
		}
		if !regexp.MustCompile(pattern).MatchString(makefile) {
			return "the Makefile has no " + word
		}
	}
	return ""
}

// TestShellCodeIsWellFormed: the blocks of documents, the crontab lines and the commands within
// units are what a shell can read.
func TestShellCodeIsWellFormed(t *testing.T) {
	t.Parallel()
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("there is no shell")
	}
	var all []string
	for _, c := range documents.Commands(t) {
		if c.Whole {
			all = append(all, ": '"+strings.ReplaceAll(c.Place(), "'", "")+"'", c.Text)
		}
	}
	check := exec.CommandContext(t.Context(), sh, "-n")
	check.Stdin = strings.NewReader(strings.Join(all, "\n") + "\n")
	out, err := check.CombinedOutput()
	assert.NoError(t, err, string(out))
}

var setting = regexp.MustCompile(`\bREDLOCK_[A-Z_]+`)

// TestSettingsThatDocumentsNameAreRead: each variable of the environment is in a program, a script
// or a configuration.
func TestSettingsThatDocumentsNameAreRead(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, suffix := range []string{".go", ".sh", ".yml", "Makefile"} {
		for _, file := range documents.Files(t, suffix) {
			for _, name := range setting.FindAllString(read(t, file), -1) {
				known[name] = true
			}
		}
	}
	for _, d := range documents.Documents(t) {
		for _, name := range setting.FindAllString(d.Text, -1) {
			assert.True(t, known[name], "%s: nothing reads %s", d.Path, name)
		}
	}
}

func TestWhatIsWrongWithACommandIsSaid(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ command, wrong string }{
		{"go test ./pool -run TestDoubtsAreLogged", ""},
		{"go test ./pool -run TestNoSuchThing", "no test matches TestNoSuchThing"},
		{"go test ./pool -run -", ""},
		{"go test ./nosuch", "no such file"},
		{"go test ./docs", "there is no package ./docs"},
		{"go test -run '^TestQuorumSchedules$' . -schedules 5", ""},
		{"go test -run '^TestQuorumSchedules$' . -rounds 5", "there is no flag -rounds"},
		{"go run ./internal/evidence/mutants -v quorum-half", ""},
		{"go run ./internal/evidence/mutants -piece 1/3", "there is no flag -piece"},
		{"go -C examples/sqlfence test ./...", ""},
		{"go -C examples/nosuch test ./...", "no such file"},
		{"go fix ./...", "not among the commands"},
	} {
		got := wrongWithGo(t, documents.Command{Document: "README.md", Text: c.command})
		assert.Contains(t, got, c.wrong, c.command)
		assert.Equal(t, c.wrong == "", got == "", c.command)
	}
	assert.Empty(t, wrongWithMake(t, documents.Command{Text: "make soak DURATION=10m"}))
	assert.Contains(t, wrongWithMake(t, documents.Command{Text: "make soap"}), "no soap")
	assert.Contains(t, wrongWithMake(t, documents.Command{Text: "make soak LENGTH=10m"}), "no LENGTH")
}
