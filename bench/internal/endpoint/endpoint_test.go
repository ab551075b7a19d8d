package endpoint

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestURLsAreReadAsThePoolReadsThem(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]Endpoint{
		"redis://host":             {Network: "tcp", Address: "host:6379"},
		"redis://10.0.0.1":         {Network: "tcp", Address: "10.0.0.1:6379"},
		"redis://:7001":            {Network: "tcp", Address: "localhost:7001"},
		"redis://:pw@[::1]:7/2":    {Network: "tcp", Address: "[::1]:7", Password: "pw", Database: 2},
		"redis://u:p%40w@1.2.3.4/": {Network: "tcp", Address: "1.2.3.4:6379", User: "u", Password: "p@w"},
		"unix:///run/r.sock":       {Network: "unix", Address: "/run/r.sock"},
		"unix://u:pw@/a/b.s?db=3":  {Network: "unix", Address: "/a/b.s", User: "u", Password: "pw", Database: 3},
	} {
		got, err := Parse(raw)
		require.NoError(t, err, raw)
		assert.Equal(t, want, *got, raw)
	}
	got, err := Parse("rediss://me:s%40ecret@[::1]:700")
	require.NoError(t, err)
	assert.Equal(t, "::1", got.TLS.ServerName)
	assert.Equal(t, "[::1]:700", got.Address)
	assert.Equal(t, "s@ecret", got.Password)
}

func TestErrorsDoNotShowPasswords(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{
		"http://me:secret@h", "secret@h", "redis://me:secret@h:port", "redis://me:sec%ret@h", "redis://me:secret@h/first",
	} {
		_, err := ParseAll([]string{"redis://good", raw})
		require.ErrorContains(t, err, "URL 1", raw)
		assert.NotContains(t, err.Error(), "sec", raw)
	}
	_, err := ParseAll(nil)
	require.Error(t, err)

	e := Endpoint{Password: "secret"}
	assert.NotContains(t, e.Hide(errors.New("ERR unknown command AUTH secret")).Error(), "secret")
	refused := errors.New("connection refused")
	assert.Equal(t, refused, e.Hide(refused))
	require.NoError(t, e.Hide(nil))
}
