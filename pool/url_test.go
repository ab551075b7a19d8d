package pool

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestURLs(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]target{
		"redis://h":          {network: "tcp", address: "h:6379", host: "h"},
		"redis://H:7001":     {network: "tcp", address: "h:7001", host: "H"},
		"redis://":           {network: "tcp", address: "localhost:6379", host: "localhost"},
		"redis://h:1/3":      {network: "tcp", address: "h:1", host: "h", database: 3},
		"redis://[::1]:7001": {network: "tcp", address: "[::1]:7001", host: "::1"},
		"rediss://h":         {network: "tcp", address: "h:6379", host: "h", tls: true},
		"redis://u:p@h":      {network: "tcp", address: "h:6379", host: "h", auth: true, user: "u", password: "p"},
		"redis://u:@h":       {network: "tcp", address: "h:6379", host: "h", auth: true, user: "u"},
		"redis://:p@a/2?standby=B:7001&standby=c": {network: "tcp", address: "a:6379", host: "a", auth: true, password: "p", database: 2, standbys: []*target{
			{network: "tcp", address: "b:7001", host: "B", auth: true, password: "p", database: 2},
			{network: "tcp", address: "c:6379", host: "c", auth: true, password: "p", database: 2},
		}},
		// URLs in the notations of other clients and services.
		"valkey://h:1":                          {network: "tcp", address: "h:1", host: "h"},
		"valkeys://u:p@h":                       {network: "tcp", address: "h:6379", host: "h", tls: true, auth: true, user: "u", password: "p"},
		"REDIS://h":                             {network: "tcp", address: "h:6379", host: "h"},
		"redis://h:1//":                         {network: "tcp", address: "h:1", host: "h"},
		"redis://h:1/0":                         {network: "tcp", address: "h:1", host: "h"},
		"redis://h?db=3":                        {network: "tcp", address: "h:6379", host: "h", database: 3},
		"redis://h/3?db=3":                      {network: "tcp", address: "h:6379", host: "h", database: 3},
		"redis://h:/3":                          {network: "tcp", address: "h:6379", host: "h", database: 3},
		"redis://h:p%2Fa%3Fs@x.upstash.io:6379": {network: "tcp", address: "x.upstash.io:6379", host: "x.upstash.io", auth: true, user: "h", password: "p/a?s"},
		"rediss://:K%3D@x.redis.cache.windows.net:6380/0":                {network: "tcp", address: "x.redis.cache.windows.net:6380", host: "x.redis.cache.windows.net", tls: true, auth: true, password: "K="},
		"valkeys://clustercfg.x.ab12cd.memorydb.us-east-1.amazonaws.com": {network: "tcp", address: "clustercfg.x.ab12cd.memorydb.us-east-1.amazonaws.com:6379", host: "clustercfg.x.ab12cd.memorydb.us-east-1.amazonaws.com", tls: true},
		"redis://a?standby=b&db=2":                                       {network: "tcp", address: "a:6379", host: "a", database: 2, standbys: []*target{{network: "tcp", address: "b:6379", host: "b", database: 2}}},
		"unix:///run/redis.sock":                                         {network: "unix", address: "/run/redis.sock"},
		"unix://u:p@/run/redis.sock?db=12":                               {network: "unix", address: "/run/redis.sock", auth: true, user: "u", password: "p", database: 12},
	} {
		got, err := parseURL(url)
		if assert.NoError(t, err, url) {
			assert.Equal(t, want, *got, url)
		}
	}
}

func TestInvalidURLsAreRefusedWithAdvice(t *testing.T) {
	t.Parallel()
	for url, advice := range map[string]string{
		"":                              "the scheme is missing",
		"localhost:6379":                "the scheme is missing",
		"h:6379,password=p,ssl=True":    "the scheme is missing", // StackExchange.Redis
		"http://h":                      "redis, rediss, valkey, valkeys or unix",
		"redis+sentinel://h:26379/m":    "redis, rediss, valkey, valkeys or unix",
		"redis://a;redis://b":           "several URLs",
		"redis://a:1 redis://b:1":       "several URLs",
		"redis:h":                       "not a URL of the form",
		"redis://h:port":                "not a URL of the form",
		"redis://h:0":                   "between 1 and 65535",
		"redis://h/one":                 "whole number, 0 or more",
		"redis://h/1/2":                 "whole number, 0 or more",
		"redis://h?db=x":                "whole number, 0 or more",
		"redis://h/1?db=2":              "two databases",
		"redis://h?db=1&db=1":           "two databases",
		"redis://h?timeout=5s":          "omit others",
		"redis://a,b,c":                 "several hosts",
		"redis://h:1:2":                 "several ports",
		"redis://::1":                   "without brackets",
		"redis://h?standby":             "host:port",
		"redis://h?standby=a&x=1":       "only parameter",
		"redis://h?standby=a/1":         "host:port",
		"redis://h?standby=u:p@a":       "host:port",
		"redis://h?standby=a:0":         "between 1 and 65535",
		"redis://h?standby=h:6379":      "duplicated",
		"redis://h?standby=a&standby=a": "duplicated",
		"redis://user@h":                "without a password",
		"redis://:pa#ss@h":              "percent-encode",
		"unix://run/redis.sock":         "absolute path",
		"unix://":                       "absolute path",
		"unix:///s?database=1":          "only parameter",
		"unix:///s?db=1&timeout=1s":     "only parameter",
	} {
		_, err := parseURL(url)
		assert.ErrorContains(t, err, advice, url)
	}
}

// A password may be mistyped in any way that breaks the surrounding URL.
func FuzzURLErrorsKeepSecrets(f *testing.F) {
	for _, s := range []string{"redis://:%s@h", "redis://u:%s@h:1/x", "redis://%s@h", "unix://u:%s@h/", "%s://h", "redis://h:%s"} {
		f.Add(s)
	}
	const secret = "hunter2secret"
	f.Fuzz(func(t *testing.T, shape string) {
		_, err := OpenWith([]string{strings.ReplaceAll(shape, "%s", secret)}, TLS(nil))
		require.Error(t, err) // at least the option is refused
		if _, err := parseURL(strings.ReplaceAll(shape, "%s", secret)); err != nil {
			assert.NotContains(t, err.Error(), secret)
		}
	})
}
