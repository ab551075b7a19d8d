package pool

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// TestUnreadLogDelaysNothing: it delays neither connections nor Close, and its records arrive when
// it is read.
func TestUnreadLogDelaysNothing(t *testing.T) {
	t.Parallel()
	unread, log := io.Pipe()
	r := newRig(t)
	r.policy = "allkeys-lru" // a doubt from the connection attempt, among others
	n := r.open(Log(slog.New(slog.NewTextHandler(log, nil))))
	t.Cleanup(func() { unread.Close() }) // before n is closed
	w := wait(t, n, "k")
	require.Equal(t, protocol.Granted, do(t, n, acquire("k", "v")).Outcome)
	eventually(t, func() bool { return len(r.commands("CLIENT TRACKING ON")) > 0 && r.CurrentConnectionCount() == 1 }, "the listener is given up, which is a doubt")
	require.Equal(t, protocol.Granted, do(t, n, release("k", "v")).Outcome)
	w.stop()
	require.NoError(t, n.Close())

	read := make(chan string)
	go func() {
		text, _ := io.ReadAll(unread)
		read <- string(text)
	}()
	n.(*node).doubts.await(testTimeout)
	log.Close()
	text := <-read
	assert.Contains(t, text, "maxmemory-policy is allkeys-lru")
	assert.Contains(t, text, "so waiters poll")
}

// TestDoubtsDoNotAccumulate: some contain text of the server, which may differ each time.
func TestDoubtsDoNotAccumulate(t *testing.T) {
	t.Parallel()
	var logged logBuffer
	n := openNode(t, "redis://127.0.0.1:1", logged.log()).(*node)
	for i := range 2 * maxDoubts {
		n.doubts.enter(fmt.Sprint("doubt ", i))
	}
	assert.Equal(t, maxDoubts, logged.count(n, "\n"))
	assert.Len(t, n.doubts.known, maxDoubts)
}

// TestDoubtsAreLoggedOnceAnHour: each kind is logged once an hour, even if the server's text
// differs each time.
func TestDoubtsAreLoggedOnceAnHour(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := doubtLog{log: slog.New(slog.NewTextHandler(&text, nil)), known: map[string]time.Time{}}
		logged := func() int {
			l.await(time.Second)
			return strings.Count(text.String(), "\n")
		}
		for i := range 2 * maxDoubts {
			l.enter(fmt.Sprintf("it cannot be authenticated again: request %d was refused", i))
		}
		l.enter("its maxmemory-policy is allkeys-lru")
		assert.Equal(t, 2, logged())
		assert.Contains(t, text.String(), "allkeys-lru")
		time.Sleep(repeatDoubts - time.Second)
		l.enter("its maxmemory-policy is allkeys-lru")
		assert.Equal(t, 2, logged())
		time.Sleep(time.Second)
		l.enter("its maxmemory-policy is allkeys-lru")
		assert.Equal(t, 3, logged())
	})
}
