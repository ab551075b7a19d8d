package documents_test

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"

	"github.com/redquorum/redquorum/internal/evidence/documents"
)

// takes are the documents whose readers take a module into their own, by the commands there, and the
// packages that their code imports.
var takes = map[string][]string{
	"README.md":        {"redlock", "pool"},
	"docs/ADAPTERS.md": {"redlock", "pool", "contrib/goredis"},
}

// isForReadersModule reports whether a command is one of those.
func isForReadersModule(c documents.Command) bool {
	words := strings.Join(c.Words(), " ")
	return takes[c.Document] != nil && (strings.HasPrefix(words, "go mod edit") || words == "go mod tidy" || strings.HasPrefix(words, "go -C /path/to/clone install"))
}

// TestReadersGetTheModule, and the command, into an empty module by the commands of the documents.
// It asks no network: what the module needs is here, because its tests need it.
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
				// The tests of what others bring in need modules that are not here.
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
				assert.Contains(t, read(t, document), "`"+other+"`")
			}
		}
	}
	assert.FileExists(t, filepath.Join(dir, "redlock"))
}

// hasModules reports whether this machine has what a module beside the root's needs.
func hasModules(t *testing.T, root, module string) bool {
	t.Helper()
	c := exec.CommandContext(t.Context(), "go", "list", "-deps", ".")
	c.Dir = filepath.Join(root, module)
	c.Env = append(os.Environ(), "GOPROXY=off", "GOWORK=off")
	return c.Run() == nil
}

// TestDependabotLooksAtEachModule: the Makefile's and the root's, each of which has a go.mod.
func TestDependabotLooksAtEachModule(t *testing.T) {
	t.Parallel()
	modules := regexp.MustCompile(`(?m)^MODULES *:= (.*)$`).FindStringSubmatch(read(t, "Makefile"))
	require.NotNil(t, modules)
	var there, looked []string
	for _, file := range documents.Files(t, "go.mod") {
		there = append(there, path.Dir(file))
	}
	var config struct {
		Updates []struct {
			Ecosystem   string `yaml:"package-ecosystem"`
			Directories []string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &config))
	for _, u := range config.Updates {
		for _, folder := range u.Directories {
			if u.Ecosystem == "gomod" {
				looked = append(looked, path.Clean("."+folder))
			}
		}
	}
	assert.ElementsMatch(t, there, append(strings.Fields(modules[1]), "."), "MODULES in the Makefile")
	assert.ElementsMatch(t, there, looked, ".github/dependabot.yml")
}

// TestModulesAreWhereTheyAreLookedFor: a release tags the modules right below contrib, and writes its version where
// they require the root's module, and no other's.
func TestModulesAreWhereTheyAreLookedFor(t *testing.T) {
	t.Parallel()
	published := 0
	for _, file := range documents.Files(t, "/go.mod") {
		module := path.Dir(file)
		within, isPublished := strings.CutPrefix(module, "contrib/")
		if !isPublished {
			continue
		}
		published++
		assert.NotContains(t, within, "/")
		text := read(t, file)
		assert.Contains(t, text, "module github.com/redquorum/redquorum/"+module+"\n")
		ours := regexp.MustCompile(`(?m)^(?:require)?\s+(github\.com/redquorum/\S+) v`).FindAllStringSubmatch(text, -1)
		require.Len(t, ours, 1, file)
		assert.Equal(t, "github.com/redquorum/redquorum", ours[0][1], file)
	}
	assert.Positive(t, published)
}
