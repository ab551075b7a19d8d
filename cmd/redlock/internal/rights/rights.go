// Package rights says what a client of "redlock serve --tokens" may do. It parses the file, finds the
// entry of a token or certificate, and decides. It is pure: it reads no file and knows no request.
//
//   - label: billing                     # whose sessions and leases these are; shown and logged
//     sha256: [9f86…, 2c26…]             # of its tokens: two while the one replaces the other
//     subjects: ["CN=billing,O=Example"] # of its certificates, or DNS:billing.example
//     lock: ["billing/**", "invoice:*"]  # may be locked, and looked at
//     look: ["**"]                       # may be looked at
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

// A Right is what may be done with a lock.
type Right string

// The rights. Who may lock a name may look at it, too.
const (
	Look Right = "look"
	Lock Right = "lock"
)

// Every matches each name.
const Every = "**"

// A Client is one that is known, with what it may do. Label tells clients apart.
type Client struct {
	Label      string
	SHA256     []string
	Subjects   []string
	Look, Lock []string // patterns of names

	sums  [][]byte // of SHA256
	names []string // of Subjects, as namesOf has them
}

// May reports whether a client may do something with a lock.
func (c *Client) May(do Right, name string) bool {
	return slices.ContainsFunc(c.patterns(do), func(p string) bool { return matches(p, name) })
}

// MayAll is May for whatever names there are.
func (c *Client) MayAll(do Right) bool { return slices.Contains(c.patterns(do), Every) }

func (c *Client) patterns(do Right) []string {
	if do == Lock {
		return c.Lock
	}
	return slices.Concat(c.Look, c.Lock)
}

// matches reports whether a name is one of a pattern. That is as in path.Match, where * stands for any text
// without a slash, except that ** at the end stands for any text.
func matches(pattern, name string) bool {
	if head, ok := strings.CutSuffix(pattern, Every); ok {
		return strings.HasPrefix(name, head)
	}
	ok, _ := path.Match(pattern, name)
	return ok
}

// Pattern returns the pattern that matches a name and no other.
func Pattern(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}

// A Table has all clients that are known.
type Table []Client

// All returns the table of one client, without a label, which has all rights and any of these tokens.
func All(tokens ...string) Table {
	c := Client{Lock: []string{Every}}
	for _, token := range tokens {
		sum := sha256.Sum256([]byte(token))
		c.sums = append(c.sums, sum[:])
	}
	return Table{c}
}

// LeastToken is how many bytes a token has at least. A shorter one could be guessed from its sum.
const LeastToken = 16

// OfToken returns the client with a token, or nil. It takes as long whatever is given.
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

// OfCertificate returns the client of a certificate: the first with its subject, or one of its subject alternative
// names. It returns nil if there is none.
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

// line is where YAML is wrong. The decoder's own words are not repeated: they quote what they do not
// understand, which may be a token.
var line = regexp.MustCompile(`line \d+`)

// Parse returns the table that a file has.
func Parse(text []byte) (t Table, err error) {
	documents := yaml.NewDecoder(bytes.NewReader(text))
	documents.KnownFields(true)
	if err := documents.Decode(&t); err != nil && !errors.Is(err, io.EOF) {
		at := cmp.Or(line.FindString(err.Error()), "some line")
		return nil, fmt.Errorf("%s: must be a YAML list of entries with label, sha256, subjects, lock and look, each at most once", at)
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

// check completes a client, and refuses what cannot be meant. What the clients before it have is in known.
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
	return nil
}

func isPattern(p string) bool {
	if head, isPrefix := strings.CutSuffix(p, Every); isPrefix {
		return utf8.ValidString(p) && !strings.ContainsAny(head, `*?[\`)
	}
	_, err := path.Match(p, "")
	return err == nil && p != "" && utf8.ValidString(p) && !strings.Contains(p, Every)
}
