// Package endpoint reads URLs of servers, for the libraries under measurement, which each have URLs
// of their own kind, and for the benchmark's own connections. It takes what pool.Open takes.
package endpoint

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// ParseAll reads the URLs of all servers. Errors do not show them, because they may hold passwords.
func ParseAll(urls []string) ([]*redis.Options, error) {
	var all []*redis.Options
	for i, raw := range urls {
		if u, err := url.Parse(raw); err == nil && u.Scheme == "redis" && u.Hostname() == "" {
			raw = strings.Replace(raw, u.Host, "localhost"+u.Host, 1)
		}
		options, err := redis.ParseURL(raw)
		if err != nil {
			return nil, fmt.Errorf("URL %d: not of the form redis://[user:password@]host[:port][/database], rediss:// or unix:///path", i+1)
		}
		all = append(all, options)
	}
	return all, nil
}

// A Scrubber takes passwords out of texts: those of some URLs, and all text that stands where a URL has
// its user and password. Some servers and libraries repeat the command that failed.
type Scrubber struct{ known *strings.Replacer }

var userinfo = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*://)[^\s/]*@`)

// NewScrubber returns one for the URLs.
func NewScrubber(urls []string) Scrubber {
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
	return Scrubber{strings.NewReplacer(pairs...)}
}

// Clean returns the text without them.
func (s Scrubber) Clean(text string) string {
	return userinfo.ReplaceAllString(s.known.Replace(text), "$1")
}
