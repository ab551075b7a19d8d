package servers

import (
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestACutIsOfOneMachineOnly(t *testing.T) {
	t.Parallel()
	urls, stop, err := start(t.Context(), "")
	require.NoError(t, err)
	defer stop()
	cut, err := NewWires(urls)
	require.NoError(t, err)
	defer cut.Close()
	whole, err := NewWires(urls)
	require.NoError(t, err)
	defer whole.Close()

	cut.Cut()
	for i := range urls {
		assert.Error(t, pingFor(cut.URLs()[i], 100*time.Millisecond))
		assert.NoError(t, ping(whole.URLs()[i]))
	}
	cut.Mend()
	for _, u := range cut.URLs() {
		assert.NoError(t, ping(u))
	}
}

func TestWiresKeepWhatTheURLSaysAndHideIt(t *testing.T) {
	t.Parallel()
	w, err := NewWires([]string{"redis://user:secret@localhost/3"})
	require.NoError(t, err)
	defer w.Close()
	u, err := url.Parse(w.URLs()[0])
	require.NoError(t, err)
	assert.Equal(t, "user:secret", u.User.String())
	assert.Equal(t, "/3", u.Path)
	assert.Equal(t, "127.0.0.1", u.Hostname())

	_, err = NewWires([]string{"unix://user:secret@/tmp/redis.sock"})
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "secret")
}
