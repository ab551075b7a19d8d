// Package rights decides the rights of clients of "redlock serve --tokens". It parses the file,
// finds the entry of a token or certificate, and checks rights. It is pure: it does not read files
// and does not handle requests.
//
//   - label: billing                     # owner of sessions and leases; shown and logged
//     sha256: [9f86…, 2c26…]             # of its tokens; two during a rotation
//     subjects: ["CN=billing,O=Example"] # of its certificates, or DNS:billing.example
//     lock: ["billing/**", "invoice:*"]  # names to lock and look at
//     look: ["**"]                       # names to look at
//     share: {sessions: 20, leases: 500, waits: 50} # limits of use at a time
//     sessions: true                     # an operator: may list and end the sessions of all clients
package rights

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
)

// A Right permits an operation on a lock.
type Right string

// The rights. The right to lock a name includes the right to look at it.
const (
	Look Right = "look"
	Lock Right = "lock"
)

// The shares: resources that a client may use up to a limit.
const (
	Sessions = "sessions"
	Leases   = "leases"
	Waits    = "waits"
)

// shares are the names of each share in a sentence, and the action that makes room.
var shares = map[string]struct{ noun, action string }{
	Sessions: {"sessions", "end one first"},
	Leases:   {"leases", "release one first"},
	Waits:    {"waiting requests", "ask again when one is answered"},
}

// Every is the pattern that matches every name.
const Every = "**"

// A Client is a known client with its rights. Label identifies the client.
type Client struct {
	Label      string
	SHA256     []string
	Subjects   []string
	Look, Lock []string       // patterns of names
	Operator   bool           `yaml:"sessions"` // may list the sessions of all clients, and end them
	Share      map[string]int // limits by Sessions, Leases and Waits; without an entry: none

	sums  [][]byte // decoded SHA256
	names []string // Subjects in the form of namesOf
}

// May reports whether a client has a right on a lock.
func (c *Client) May(do Right, name string) bool {
	return slices.ContainsFunc(c.patterns(do), func(p string) bool { return matches(p, name) })
}

// MayAll reports whether a client has a right on all names.
func (c *Client) MayAll(do Right) bool { return slices.Contains(c.patterns(do), Every) }

// Exceeds returns the reason a client that uses a number of a share may not use another one, or an
// empty text.
func (c *Client) Exceeds(share string, used int) string {
	most, ok := c.Share[share]
	if !ok || used < most {
		return ""
	}
	return fmt.Sprintf("%q has %d %s, and its share in --tokens is %d: %s, or ask an operator for a larger share",
		c.Label, used, shares[share].noun, most, shares[share].action)
}

// UsedPart returns the used part of a share, from 0 to 1, or more if the share was reduced. It is
// zero without a limit.
func (c *Client) UsedPart(share string, used int) float64 {
	if most := c.Share[share]; most > 0 {
		return float64(used) / float64(most)
	}
	return 0
}

func (c *Client) patterns(do Right) []string {
	if do == Lock {
		return c.Lock
	}
	return slices.Concat(c.Look, c.Lock)
}

// matches reports whether a name matches a pattern. The rules are those in path.Match, where *
// stands for any text without a slash, except that ** at the end stands for any text.
func matches(pattern, name string) bool {
	if head, ok := strings.CutSuffix(pattern, Every); ok {
		return strings.HasPrefix(name, head)
	}
	ok, _ := path.Match(pattern, name)
	return ok
}

// Pattern returns the pattern that matches only this name.
func Pattern(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// A Table lists all known clients.
type Table []Client

// All returns the table of one client without a label, with all rights and any of these tokens.
func All(tokens ...string) Table {
	c := Client{Lock: []string{Every}}
	for _, token := range tokens {
		sum := sha256.Sum256([]byte(token))
		c.sums = append(c.sums, sum[:])
	}
	return Table{c}
}

// LeastToken is the minimum length of a token, in bytes. A shorter token could be guessed from its
// hash.
const LeastToken = 16

// OfToken returns the client with a token, or nil. Its running time does not depend on the token.
func (t Table) OfToken(token string) (found *Client) {
	have := sha256.Sum256([]byte(token))
	for i := range t {
		for _, sum := range t[i].sums {
			if subtle.ConstantTimeCompare(have[:], sum) == 1 && len(token) >= LeastToken {
				found = &t[i]
			}
		}
	}
	return found
}

// OfCertificate returns the client of a certificate: the first one with its subject, or with one of
// its subject alternative names. It returns nil for an unknown certificate.
func (t Table) OfCertificate(of *x509.Certificate) *Client {
	names := namesOf(of)
	i := slices.IndexFunc(t, func(c Client) bool {
		return slices.ContainsFunc(c.names, func(name string) bool { return slices.Contains(names, name) })
	})
	if i < 0 {
		return nil
	}
	return &t[i]
}

// line matches the position of a YAML error. The text of the decoder is not repeated, because it
// quotes invalid input, which may be a token.
var line = regexp.MustCompile(`line \d+`)

// Parse parses the text of a file.
func Parse(text []byte) (t Table, err error) {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	documents.KnownFields(true)
	if err := documents.Decode(&t); err != nil && !errors.Is(err, io.EOF) {
		at := cmp.Or(line.FindString(err.Error()), "some line")
		return nil, fmt.Errorf("%s: must be a YAML list of entries with label, sha256, subjects, lock, look, sessions and share, each at most once", at)
	}
	if !errors.Is(documents.Decode(new(yaml.Node)), io.EOF) {
		return nil, errors.New("more than one YAML document: remove the line --- between them")
	}
	if len(t) == 0 {
		return nil, errors.New("no entry, so all clients would be refused: add one")
	}
	known := map[string]bool{}
	for i := range t {
		if err := t[i].check(known); err != nil {
			return nil, fmt.Errorf("entry %d (%.40q): %w", i+1, t[i].Label, err)
		}
	}
	return t, nil
}

// check completes a client, and refuses an invalid one. known contains the labels, tokens and
// subjects of the clients before it.
func (c *Client) check(known map[string]bool) error {
	isTaken := func(what, text string) bool {
		was := known[what+text]
		known[what+text] = true
		return was
	}
	switch {
	case c.Label == "", len(c.Label) > 128, strings.ContainsFunc(c.Label, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("label must have 1 to 128 bytes of printable text")
	case isTaken("label", c.Label):
		return errors.New("label is duplicated: use another one")
	case len(c.SHA256)+len(c.Subjects) == 0:
		return errors.New("sha256 and subjects are missing: add one of them")
	}
	for _, text := range c.SHA256 {
		sum, err := hex.DecodeString(text)
		switch empty := sha256.Sum256(nil); {
		case err != nil || len(sum) != sha256.Size:
			return errors.New("sha256 must be the 64 hexadecimal digits that sha256sum prints for a token")
		case bytes.Equal(sum, empty[:]):
			return errors.New("sha256 is the hash of an empty token: hash the token again")
		case isTaken("sha256", string(sum)):
			return errors.New("sha256 is duplicated: two clients must not have the same token")
		}
		c.sums = append(c.sums, sum)
	}
	for _, text := range c.Subjects {
		name, err := nameOf(text)
		switch {
		case err != nil:
			return fmt.Errorf("subject %q: %w: write it as openssl x509 -subject prints it, or DNS:NAME, URI:URI, email:ADDRESS or IP:ADDRESS", text, err)
		case isTaken("subject", name):
			return fmt.Errorf("subject %q is duplicated: two clients must not have the same certificate", text)
		}
		c.names = append(c.names, name)
	}
	for _, p := range slices.Concat(c.Look, c.Lock) {
		if !isPattern(p) {
			return fmt.Errorf("the pattern %q is invalid: write it as for path.Match, or as text with ** at its end", p)
		}
	}
	for share, most := range c.Share {
		switch _, ok := shares[share]; {
		case !ok:
			return fmt.Errorf("share: %q is unknown: use sessions, leases or waits", share)
		case most < 1:
			return fmt.Errorf("share: %s: %d must be at least 1; omit it for no limit", share, most)
		}
	}
	return nil
}

func isPattern(p string) bool {
	if head, isPrefix := strings.CutSuffix(p, Every); isPrefix {
		return utf8.ValidString(p) && !strings.ContainsAny(head, `*?[\`)
	}
	_, err := path.Match(p, "")
	return err == nil && p != "" && utf8.ValidString(p) && !strings.Contains(p, Every)
}
