package load

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
)

// A scrubber takes passwords out of texts: those of the job's URLs, and all text that stands where
// a URL has its user and password.
type scrubber struct{ known *strings.Replacer }

var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/]*@`)

func newScrubber(urls []string) scrubber {
	var pairs []string
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil || u.User == nil {
			continue
		}
		password, _ := u.User.Password()
		_, written, _ := strings.Cut(u.User.String(), ":")
		for _, secret := range []string{password, written} {
			if secret != "" {
				pairs = append(pairs, secret, "***")
			}
		}
	}
	return scrubber{strings.NewReplacer(pairs...)}
}

func (s scrubber) clean(text string) string {
	return userinfo.ReplaceAllString(s.known.Replace(text), "$1")
}

var digits = regexp.MustCompile(`[0-9]+`)

// group is the message without its numbers, which differ where its kind does not, and without
// repetition: of several nodes, one that says the same is enough.
func (s scrubber) group(text string) string {
	text = digits.ReplaceAllString(s.clean(text), "#")
	text = strings.Join(slices.Compact(strings.Split(text, "; ")), "; ")
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "") + "..."
	}
	return text
}

const (
	longestError = 300
	// distinctErrors bounds how many kinds a process tells apart: a library may put something
	// random into its messages.
	distinctErrors = 100
	otherErrors    = "(other messages)"
)

// count adds n of the message.
func count(messages map[string]int64, message string, n int64) {
	if _, known := messages[message]; !known && len(messages) >= distinctErrors {
		message = otherErrors
	}
	messages[message] += n
}
