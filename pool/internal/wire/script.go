package wire

import (
	"crypto/fips140"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"strings"
)

// A script is Lua source with the digest that calls it.
type script struct {
	source string
	digest string
	head   Packet // beginning of a call; nil if the number of keys varies
}

// newScript returns a script of folder lua with these numbers of keys and other arguments.
func newScript(keys, others int, name string) *script {
	s := newKeysScript(name)
	s.head = s.begin(nil, keys, others)
	return s
}

// newKeysScript returns a script of folder lua with a variable number of keys.
func newKeysScript(name string) *script {
	s := &script{source: luaSource(name)}
	fips140.WithoutEnforcement(func() { // the digest is a name, and Redis accepts only SHA-1
		sum := sha1.Sum([]byte(s.source))
		s.digest = hex.EncodeToString(sum[:])
	})
	return s
}

// begin appends the beginning of a call with these numbers of keys and other arguments.
func (s *script) begin(p Packet, keys, others int) Packet {
	return p.Array(3 + keys + others).Text("EVALSHA").Text(s.digest).Number(int64(keys))
}

//go:embed lua/*.lua
var luaFiles embed.FS

// luaSource returns the script with that name as servers get it: without the lines that are
// comments, and with the text of other files in place of the lines that include them. So each file
// is plain Lua for editors and linters, and servers store no comments.
func luaSource(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic(err) // only this package passes names
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

// The scripts of locks answer 1 for success, and otherwise a list with the remaining TTL of the
// blocking key, in the format of PTTL. The two types differ, and the common one costs no
// allocation. lua/readers.lua is the common part of the scripts for readers.
var (
	extendScript  = newScript(1, 2, "extend")
	lookScript    = newScript(1, 1, "look")
	releaseScript = newScript(1, 1, "release")
	inspectScript = newScript(1, 0, "inspect")

	queueScript  = newScript(2, 5, "queue")
	markScript   = newScript(1, 2, "mark")
	recordScript = newScript(1, 4, "record")
	slotsScript  = newKeysScript("slots")
	kindScript   = newScript(2, 4, "kind")

	shareScript         = newScript(3, 3, "share")
	extendSharedScript  = newScript(2, 2, "extend_shared")
	releaseSharedScript = newScript(2, 2, "release_shared")
	intendScript        = newScript(2, 3, "intend")
)

// The scripts for many keys. KEYS are the keys; ARGV are the TTL in milliseconds, and one value per
// key. The answer is 1 if all requests were granted, and otherwise a number for each key:
// mergedGranted, the remaining TTL of another client's key in the format of PTTL, or mergedAlone
// for a request that must be repeated alone.
var (
	extendEachScript  = newKeysScript("extend_each")
	lookEachScript    = newKeysScript("look_each")
	releaseEachScript = newKeysScript("release_each")
)

// ProcessScript answers the identity of the server's process, like the script of the record.
var ProcessScript = luaSource("process")
