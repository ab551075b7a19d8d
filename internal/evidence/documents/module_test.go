package documents_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

// takes maps documents to the packages that their readers import. The commands in these documents
// add this repository's module to a module of the reader.
var takes = map[string][]string{
	"README.md":        {"redlock", "pool"},
	"docs/ADAPTERS.md": {"redlock", "pool", "contrib/goredis"},
}

// isForReadersModule reports whether a command is one of these commands.
func isForReadersModule(c documents.Command) bool {
	words := strings.Join(c.Words(), " ")
	return takes[c.Document] != nil && (strings.HasPrefix(words, "go mod edit") || words == "go mod tidy" || strings.HasPrefix(words, "go -C /path/to/clone install"))
}

// TestReadersGetTheModule: the commands of the documents add the module and the command to an empty
// module. It uses no network: the required modules are on this machine, because the module's own
// tests need them.
func TestReadersGetTheModule(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := documents.Root(t)
	run := func(line string) string {
		t.Helper()
		c := exec.CommandContext(t.Context(), "sh", "-c", strings.ReplaceAll(line, "/path/to/clone", root))
		c.Dir = dir
		c.Env = append(os.Environ(), "GOBIN="+dir, "GOPROXY=off", "GOSUMDB=off", "GOWORK=off")
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s\n%s", line, out)
		return string(out)
	}
	run("go mod init example.com/reader")
	for _, document := range []string{"README.md", "docs/ADAPTERS.md"} {
		if document != "README.md" && !hasModules(t, root, takes[document][2]) {
			t.Log("left out, because this machine lacks what it needs: ", takes[document][2])
			continue
		}
		code := "package main\n"
		for _, path := range takes[document] {
			code += "import _ \"github.com/redquorum/redquorum/" + path + "\"\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(code+"func main() {}\n"), 0o600))
		for _, c := range documents.Commands(t) {
			if c.Document == document && isForReadersModule(c) {
				// The tests of the dependencies need modules that are not on this machine.
				run(strings.Replace(c.Text, "go mod tidy", "go mod tidy -e", 1))
			}
		}
		run("go build -o reader .")
		if document == "README.md" {
			others := strings.Fields(run(`go list -deps -f '{{with .Module}}{{if not .Replace}}{{if not .Main}}{{.Path}}{{end}}{{end}}{{end}}' .`))
			slices.Sort(others)
			others = slices.Compact(others)
			assert.Len(t, others, 4, "as the README says")
			for _, other := range others {
				assert.Contains(t, documents.Read(t, document), "`"+other+"`")
			}
		}
	}
	assert.FileExists(t, filepath.Join(dir, "redlock"))
}

// hasModules reports whether this machine has all dependencies of a module other than the root.
func hasModules(t *testing.T, root, module string) bool {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	c.Dir = filepath.Join(root, module)
	c.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	return c.Run() == nil
}
