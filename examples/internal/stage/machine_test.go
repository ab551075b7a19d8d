package stage

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCutAffectsOnlyOneMachine(t *testing.T) {
	t.Parallel()
	urls, stop, err := start(t.Context(), "")
	require.NoError(t, err)
	defer stop()
	all, end, err := Machines(urls, "cut", "whole")
	require.NoError(t, err)
	defer end()
	cut, whole := all[0], all[1]
	cut.Cut()
	for i := range urls {
		assert.Error(t, pingFor(cut.URLs[i], 100*time.Millisecond))
		assert.NoError(t, ping(whole.URLs[i]))
	}
	cut.Mend()
	for _, u := range cut.URLs {
		assert.NoError(t, ping(u))
	}
}

func TestMachinesKeepAndHideThePassword(t *testing.T) {
	t.Parallel()
	all, stop, err := Machines([]string{"redis://user:secret@localhost/3"}, "anna")
	require.NoError(t, err)
	defer stop()
	u, err := url.Parse(all[0].URLs[0])
	require.NoError(t, err)
	assert.Equal(t, "user:secret", u.User.String())
	assert.Equal(t, "/3", u.Path)
	assert.Equal(t, "127.0.0.1", u.Hostname())

	_, _, err = Machines([]string{"unix://user:secret@/tmp/redis.sock"}, "anna")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
}
