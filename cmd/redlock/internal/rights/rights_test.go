package rights

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestMay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pattern string
		yes, no []string
	}{
		{"billing", []string{"billing"}, []string{"", "billing2", "Billing", "billing/", "billing\x00", " billing"}},
		{"billing:*", []string{"billing:", "billing:7", "billing:a:b"}, []string{"billing", "billing:a/b", "x billing:7"}},
		{"*", []string{"", "a", "ä:b"}, []string{"a/b", "/"}},
		{"a/*/c", []string{"a/b/c", "a/../c"}, []string{"a/c", "a/b/d/c", "a/b/c/"}},
		{"job-?", []string{"job-1", "job-ä"}, []string{"job-", "job-12", "job-/"}},
		{"job-[0-9]", []string{"job-1"}, []string{"job-a", "job-[0-9]"}},
		{`a\*`, []string{"a*"}, []string{"ab", `a\*`}},
		{"**", []string{"", "a", "a/b", "**"}, nil},
		{"billing/**", []string{"billing/", "billing/a/b", "billing/../payroll"}, []string{"billing", "billing2/a", "/billing/a"}},
	} {
		of := &Client{Lock: []string{"never-this", c.pattern}}
		for _, name := range c.yes {
			assert.True(t, of.May(Lock, name), "%s %q", c.pattern, name)
			assert.True(t, of.May(Look, name), "%s %q", c.pattern, name)
		}
		for _, name := range c.no {
			assert.False(t, of.May(Lock, name), "%s %q", c.pattern, name)
			assert.False(t, of.May(Look, name), "%s %q", c.pattern, name)
		}
		assert.Equal(t, c.pattern == Every, of.MayAll(Look))
	}
	looker := &Client{Look: []string{"a"}}
	assert.True(t, looker.May(Look, "a"))
	assert.False(t, looker.May(Lock, "a"))
	assert.False(t, looker.May(Right("grant"), "b"))
	for _, name := range []string{"billing/a", `a\*b`, "a*", "**", "job-?", "[0-9]", "ä"} { // each pattern matches one name
		own := &Client{Lock: []string{Pattern(name)}}
		assert.True(t, own.May(Lock, name), name)
		assert.False(t, own.May(Lock, name+"x") || own.May(Lock, "x"+name), name)
	}
}

func sum(token string) string {
	of := sha256.Sum256([]byte(token))
	return hex.EncodeToString(of[:])
}

const (
	first  = "the-first-of-the-tokens"
	second = "the-second-of-the-tokens"
)

func TestClientIsFound(t *testing.T) {
	t.Parallel()
	table, err := Parse([]byte(`
- label: billing
  sha256: [` + sum(first) + `, ` + strings.ToUpper(sum(second)) + `]
  lock: ["billing/**"]
- label: payroll
  subjects: ["CN=payroll,O=Example"]
  lock: ["payroll"]
- label: weak
  sha256: [` + sum("short") + `]
`))
	require.NoError(t, err)
	for _, token := range []string{first, second} {
		assert.Equal(t, "billing", table.OfToken(token).Label)
	}
	for _, token := range []string{"", "short", first + "\n", strings.ToUpper(first), sum(first)} {
		assert.Nil(t, table.OfToken(token), token)
	}
	all := All(first, second)
	assert.True(t, all.OfToken(second).May(Lock, "a/b"))
	assert.Nil(t, all.OfToken("another-token-of-theirs"))
}

func TestShareIsALimit(t *testing.T) {
	t.Parallel()
	const ask = "ask an operator for a larger share"
	for _, c := range []struct {
		limits map[string]int
		share  string
		used   int
		says   string
	}{
		{nil, Sessions, 1_000_000, ""},
		{map[string]int{Leases: 1}, Sessions, 1_000_000, ""},
		{map[string]int{Sessions: 20}, Sessions, 0, ""},
		{map[string]int{Sessions: 20}, Sessions, 19, ""},
		{map[string]int{Sessions: 20}, Sessions, 20, `"billing" has 20 sessions, and its share in --tokens is 20: end one first, or ` + ask},
		{map[string]int{Leases: 3}, Leases, 5, `"billing" has 5 leases, and its share in --tokens is 3: release one first, or ` + ask}, // reduced
		{map[string]int{Waits: 1}, Waits, 1, `"billing" has 1 waiting requests, and its share in --tokens is 1: ask again when one is answered, or ` + ask},
	} {
		of := &Client{Label: "billing", Share: c.limits}
		assert.Equal(t, c.says, of.Exceeds(c.share, c.used), "%v %s %d", c.limits, c.share, c.used)
		assert.Equal(t, c.says != "", of.UsedPart(c.share, c.used) >= 1)
	}
	half := &Client{Share: map[string]int{Waits: 4}}
	assert.Equal(t, 0.5, half.UsedPart(Waits, 2))
	assert.Zero(t, half.UsedPart(Leases, 2))
}

// TestInvalidFiles: invalid files are refused, and not quoted, because a token may be in the place
// of its hash.
func TestInvalidFiles(t *testing.T) {
	t.Parallel()
	entry := "- label: a\n  sha256: [" + sum(first) + "]\n"
	for text, says := range map[string]string{
		"":                                "no entry",
		"[]":                              "no entry",
		"label: a":                        "line 1: must be a YAML list",
		"- " + second:                     "line 1: must be a YAML list",
		"- {label: a, label: b}":          "line 1: must be a YAML list",
		"- {label: a, sha265: []}":        "line 1: must be a YAML list",
		"- label: a\n  sha256: " + second: "line 2: must be a YAML list",
		"- label: 'a":                     "a YAML list",
		entry + "---\n" + entry:           "more than one YAML document",
		entry + entry:                     "entry 2 (\"a\"): label is duplicated",
		entry + strings.Replace(entry, "label: a", "label: b", 1): "entry 2 (\"b\"): sha256 is duplicated",
		"- sha256: []":                            "): label must have 1 to 128 bytes",
		"- null":                                  "no entry",
		`- label: "a\nb"`:                         "): label must have 1 to 128 bytes",
		"- label: " + strings.Repeat("x", 129):    "): label must have 1 to 128 bytes",
		"- label: a":                              "entry 1 (\"a\"): sha256 and subjects are missing",
		"- {label: a, sha256: [" + second + "]}":  "sha256 must be the 64",
		"- {label: a, sha256: [abcd]}":            "sha256 must be the 64",
		"- {label: a, sha256: [" + sum("") + "]}": "empty token",
		"- {label: a, subjects: ['']}":            `subject "": is empty: write it as openssl`,
		"- {label: a, subjects: [b]}":             `subject "b": "b" is not a part of a subject, such as CN=billing`,
		"- {label: a, subjects: ['CN=b, O=c', 'subject=O = c, CN = b']}": "is duplicated",
		entry + "  lock: ['']":                    `the pattern ""`,
		entry + "  look: ['[']":                   `the pattern "["`,
		entry + `  lock: ['a\']`:                  `the pattern "a\\"`,
		entry + `  force: [a]`:                    `must be a YAML list of entries`,
		entry + "  lock: ['a**b']":                `the pattern "a**b"`,
		entry + "  lock: ['a*/**']":               `the pattern "a*/**"`,
		entry + "  lock: ['***']":                 `the pattern "***"`,
		entry + "  sessions: [a]":                 `must be a YAML list of entries`,
		entry + "  share: {locks: 3}":             `share: "locks" is unknown: use sessions, leases or waits`,
		entry + "  share: {waits: 0}":             `share: waits: 0 must be at least 1; omit it for no limit`,
		entry + "  share: {leases: -1, waits: 1}": `share: leases: -1 must be at least 1`,
		entry + "  share: {leases: many}":         `must be a YAML list of entries`,
		entry + "  share: {waits: 1, waits: 2}":   `must be a YAML list of entries`,
	} {
		_, err := Parse([]byte(text))
		if assert.ErrorContains(t, err, says, text) {
			assert.NotContains(t, err.Error(), second)
		}
	}
}
