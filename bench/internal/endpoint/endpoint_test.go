package endpoint

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestURLsAreReadAsThePoolReadsThem(t *testing.T) {
	t.Parallel()
	type login struct {
		network, address, user, password string
		database                         int
	}
	for raw, want := range map[string]login{
		"redis://host":             {"tcp", "host:6379", "", "", 0},
		"redis://10.0.0.1":         {"tcp", "10.0.0.1:6379", "", "", 0},
		"redis://:7001":            {"tcp", "localhost:7001", "", "", 0},
		"redis://:pw@[::1]:7/2":    {"tcp", "[::1]:7", "", "pw", 2},
		"redis://u:p%40w@1.2.3.4/": {"tcp", "1.2.3.4:6379", "u", "p@w", 0},
		"unix:///run/r.sock":       {"unix", "/run/r.sock", "", "", 0},
		"unix://u:pw@/a/b.s?db=3":  {"unix", "/a/b.s", "u", "pw", 3},
	} {
		all, err := ParseAll([]string{raw})
		require.NoError(t, err, raw)
		e := all[0]
		assert.Equal(t, want, login{e.Network, e.Addr, e.Username, e.Password, e.DB}, raw)
	}
	all, err := ParseAll([]string{"rediss://me:s%40ecret@[::1]:700"})
	require.NoError(t, err)
	assert.Equal(t, "::1", all[0].TLSConfig.ServerName)
}

func TestErrorsDoNotShowPasswords(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"http://me:secret@h", "secret@h", "redis://me:secret@h:port", "redis://me:sec%ret@h", "redis://me:secret@h/first",
	} {
		_, err := ParseAll([]string{"redis://good", raw})
		require.ErrorContains(t, err, "URL 2", raw)
		assert.NotContains(t, err.Error(), "sec", raw)
	}
}

func TestPasswordsAreTakenOut(t *testing.T) {
	t.Parallel()
	s := NewScrubber([]string{"redis://user:p%40ss1@localhost:1", "redis://:other@localhost:2", "localhost:3", "://"})
	for text, want := range map[string]string{
		"dial redis://user:p%40ss1@localhost:1: no":       "dial redis://localhost:1: no",
		"dial redis://foreign:secr@t@localhost:1/0: no":   "dial redis://localhost:1/0: no",
		"AUTH p@ss1 failed, other failed":                 "AUTH *** failed, *** failed",
		"unix:///tmp/a@b and rediss://localhost are fine": "unix:///tmp/a@b and rediss://localhost are fine",
	} {
		assert.Equal(t, want, s.Clean(text))
	}
}
