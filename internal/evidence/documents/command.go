package documents

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A Command is one command line of a document.
type Command struct {
	Document string // path from the root
	Line     int
	Text     string // without comment
	Exit     int    // exit code in its comment: "# exits with 75"
	Whole    bool   // the command is in a block and can be run unchanged; commands within prose may be incomplete
}

// RunElsewhere maps documents whose commands need special servers to the test that runs the
// commands.
var RunElsewhere = map[string]string{
	"docs/OPERATING.md":  "integration/operating_test.go",
	"docs/KUBERNETES.md": "cmd/redlock/kubernetes_unix_test.go",
}

// Place returns the place of the command, for messages.
func (c Command) Place() string { return c.Document + ":" + strconv.Itoa(c.Line) + ": " + c.Text }

var (
	// begins matches the beginning of a command line in an indented block or within prose. In a
	// block that is marked as shell, every line is a command.
	begins = regexp.MustCompile(`^(?:[A-Z][A-Z_]*=\S.*? )*(?:(?:go (?:-C|run|test|build|install|mod|doc|vet)|make|redlock|docker|docker-compose|redis-cli|kubectl|apt-get|examples/(?:hold|serve)/\S+) [\w./"<-]|\.ci/run)`)
	drawn  = regexp.MustCompile(`[^\x00-\x7f]`) // a line of a picture, not of a shell

	comment    = regexp.MustCompile(`(?:^|\s+)#\s.*$`)
	exitCode   = regexp.MustCompile(`\bexits with (\d+)`)
	assignment = regexp.MustCompile(`^[A-Z][A-Z_]*=(?:\$\([^)]*\)|"[^"]*"|'[^']*'|[^\s"'$]|\$\w)*\s+`)
	inUnit     = regexp.MustCompile(`^ExecStart=(.*)`)
	inYAML     = regexp.MustCompile(`^\s*command: \[(.*)\]`)
	inCrontab  = regexp.MustCompile(`^(?:\S+\s+){5}(.*)`)
	splitWords = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// Commands returns the command lines of all documents except the changelog, which describes the
// past.
func Commands(t *testing.T) (all []Command) {
	t.Helper()
	for _, d := range Documents(t) {
		if d.Path != "CHANGELOG.md" {
			all = append(all, d.Commands()...)
		}
	}
	require.Greater(t, len(all), 50)
	return all
}

// Commands returns the command lines of the document: from blocks for a shell, crontab, systemd
// unit or container, and from other code that looks like a command line.
func (d Document) Commands() (all []Command) {
	for _, code := range d.Codes() {
		pending, at := "", 0
		for i, line := range strings.Split(code.Text, "\n") {
			if pending == "" {
				at = code.Line + i
			}
			if more, continued := strings.CutSuffix(line, `\`); continued && code.Language != "inline" {
				pending += more
				continue
			}
			c := Command{Document: d.Path, Line: at, Whole: code.Language != "inline"}
			if c.Text = commandIn(code.Language, pending+line); c.Text != "" {
				if exit := exitCode.FindStringSubmatch(comment.FindString(c.Text)); exit != nil {
					c.Exit, _ = strconv.Atoi(exit[1])
				}
				c.Text = strings.TrimSpace(comment.ReplaceAllString(c.Text, ""))
			}
			if c.Text != "" {
				all = append(all, c)
			}
			pending = ""
		}
	}
	return all
}

// commandIn returns the command in a line of code, or an empty string.
func commandIn(language, line string) string {
	within := func(pattern *regexp.Regexp) string {
		if found := pattern.FindStringSubmatch(line); found != nil {
			return found[1]
		}
		return ""
	}
	switch language {
	case "sh", "bash", "shell", "console":
		return line
	case "crontab":
		return within(inCrontab)
	case "ini":
		return within(inUnit)
	case "yaml":
		return strings.NewReplacer(",", "", `"`, "").Replace(within(inYAML))
	case "indented", "inline", "":
		if begins.MatchString(line) && !drawn.MatchString(line) {
			return line
		}
	}
	return ""
}

// Words returns the words of the command without assignments to the environment, up to the first
// operator of the shell. It removes quotes around words, and does nothing else that a shell does.
func (c Command) Words() (words []string) {
	text := c.Text
	for assignment.MatchString(text) {
		text = assignment.ReplaceAllString(text, "")
	}
	for _, word := range splitWords.FindAllString(text, -1) {
		if word == "|" || word == "&&" || word == "||" || word == "&" || word == ";" || word == ">" {
			break
		}
		words = append(words, strings.Trim(word, `'"`))
	}
	return words
}

// Calls returns the arguments of the command if it begins with the words of program, for example
// "go -C bench run .". It ignores the folder in the path of the program.
func (c Command) Calls(program string) (args []string, yes bool) {
	words, first := c.Words(), strings.Fields(program)
	if len(words) < len(first) {
		return nil, false
	}
	words[0] = path.Base(words[0])
	if strings.Join(words[:len(first)], " ") != program {
		return nil, false
	}
	return words[len(first):], true
}

// Dir returns the folder, from the root, in which readers run the command: the folder of a module
// for its README, and the root for all other documents.
func (c Command) Dir() string {
	if dir := path.Dir(c.Document); strings.HasPrefix(dir, "contrib/") {
		return dir
	}
	return "."
}
