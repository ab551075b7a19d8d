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
	Document string // its path from the root
	Line     int
	Text     string // without comment
	Exit     int    // what its comment says: "# exits with 75"
	Whole    bool   // it stands in a block: it can be run as it is, and within prose it may leave things out
}

// RunElsewhere has the documents whose commands need servers of their own, and the test that carries
// them out.
var RunElsewhere = map[string]string{
	"docs/OPERATING.md":  "integration/operating_test.go",
	"docs/KUBERNETES.md": "cmd/redlock/kubernetes_unix_test.go",
}

// Place is where the command stands, for messages.
func (c Command) Place() string { return c.Document + ":" + strconv.Itoa(c.Line) + ": " + c.Text }

var (
	// begins are the words that a command line in an indented block or within prose begins with.
	// Every line of a block that says it is for a shell is one.
	begins = regexp.MustCompile(`^(?:[A-Z][A-Z_]*=\S.*? )*(?:(?:go (?:-C|run|test|build|install|mod|doc|vet)|make|redlock|docker|docker-compose|redis-cli|kubectl|apt-get|examples/(?:hold|serve)/\S+) [\w./"<-]|\.ci/run)`)
	drawn  = regexp.MustCompile(`[^\x00-\x7f]`) // a line of a picture, and none of a shell

	comment    = regexp.MustCompile(`(?:^|\s+)#\s.*$`)
	exitCode   = regexp.MustCompile(`\bexits with (\d+)`)
	assignment = regexp.MustCompile(`^[A-Z][A-Z_]*=(?:\$\([^)]*\)|"[^"]*"|'[^']*'|[^\s"'$]|\$\w)*\s+`)
	inUnit     = regexp.MustCompile(`^ExecStart=(.*)`)
	inYAML     = regexp.MustCompile(`^\s*command: \[(.*)\]`)
	inCrontab  = regexp.MustCompile(`^(?:\S+\s+){5}(.*)`)
	splitWords = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

// Commands returns the command lines of all documents but the changelog, which tells of what was.
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

// Commands returns the command lines of the document: those of blocks for a shell, crontab, systemd
// unit or container, and those in other code that look like one.
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

// commandIn returns the command that a line of code has, or nothing.
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

// Words returns the words of the command without what is set in its environment, up to the first
// operator of the shell. Quotes around a word are taken off; nothing else is done that a shell does.
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

// Calls returns the arguments of the command if its first words are those of program, such as
// "go -C bench run .". The folder of a program does not matter.
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

// Dir is the folder, from the root, that readers of the document are in: that of a module for its
// README, and the root for all others.
func (c Command) Dir() string {
	if dir := path.Dir(c.Document); strings.HasPrefix(dir, "contrib/") {
		return dir
	}
	return "."
}
