package wire

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

// TestScriptsUseTheConstantsOfThisPackage: a Lua file cannot refer to a Go constant, so it repeats
// the value.
func TestScriptsUseTheConstantsOfThisPackage(t *testing.T) {
	t.Parallel()
	for name, word := range map[string]string{
		"readers": protocol.ReadersValue, "refuse_release": protocol.ReadersValue, "intend": protocol.ReadersValue,
		"read_counter": highest, "accept_token": highest, "record": record.PrimaryKey,
	} {
		assert.Contains(t, luaSource(name), "'"+word+"'", name)
	}
	assert.Contains(t, luaSource("record"), "data = '"+record.OwnData+"'")
	assert.Contains(t, luaSource("read_counter"), "error_reply('REDLOCKFENCE ")
}

// TestServersGetScriptsWithoutTheirComments: the scripts still have all their code.
func TestServersGetScriptsWithoutTheirComments(t *testing.T) {
	t.Parallel()
	for _, source := range Scripts() {
		assert.NotContains(t, "\n"+source, "\n--")
	}
	assert.Equal(t, 2, strings.Count(luaSource("release_fenced"), "redis.call('GET', KEYS[1])")+strings.Count(luaSource("release_fenced"), "pcall('ZSCORE'"))
	assert.Contains(t, luaSource("release_fenced"), luaSource("accept_token")+"end\nrefuse()\n"+luaSource("refuse_release"))
}

// TestProgramStartsInFIPSMode: SHA-1 panics in this mode.
func TestProgramStartsInFIPSMode(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=fips140=only")
	said, err := cmd.CombinedOutput()
	assert.NoError(t, err, "%s", said)
}
