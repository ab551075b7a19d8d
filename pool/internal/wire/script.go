package wire

import (
	"crypto/fips140"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

// A script is Lua source, and how a call of it by its digest begins.
type script struct {
	source string
	digest string
	head   Packet // nil: the number of keys differs from call to call
}

// newScript returns a script of folder lua that takes so many keys, and so many other arguments.
func newScript(keys, others int, name string) *script {
	s := newKeysScript(name)
	s.head = s.begin(nil, keys, others)
	return s
}

// newKeysScript returns a script of folder lua whose number of keys differs from call to call.
func newKeysScript(name string) *script {
	s := &script{source: luaSource(name)}
	fips140.WithoutEnforcement(func() { // the digest is a name, and Redis takes no other
		sum := sha1.Sum([]byte(s.source))
		s.digest = hex.EncodeToString(sum[:])
	})
	return s
}

// begin appends the beginning of a call with so many keys, and so many other arguments.
func (s *script) begin(p Packet, keys, others int) Packet {
	return p.Array(3 + keys + others).Text("EVALSHA").Text(s.digest).Number(int64(keys))
}

//go:embed lua/*.lua
var luaFiles embed.FS

// luaSource returns the script of that name as servers get it: without the lines that are comments, and
// with other files in place of the lines that include them. So a file is what an editor and a linter take
// it for, and servers keep no prose.
func luaSource(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // a name that only this package gives
	}
	var source strings.Builder
	for line := range strings.Lines(string(text)) {
		comment, isComment := strings.CutPrefix(line, "--")
		if !isComment {
			source.WriteString(line)
		} else if other, includes := strings.CutPrefix(comment, " include "); includes {
			source.WriteString(luaSource(strings.TrimSpace(other)))
		}
	}
	return source.String()
}
