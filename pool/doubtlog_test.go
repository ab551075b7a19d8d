package pool

import (
	"fmt"
	"io"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
)

// TestALogThatNobodyReadsHoldsUpNothing, neither connections nor Close, and what was logged comes when
// it is read.
func TestALogThatNobodyReadsHoldsUpNothing(t *testing.T) {
	t.Parallel()
	unread, log := io.Pipe()
	r := newRig(t)
	r.policy = "allkeys-lru" // a doubt of the connecting, beside others
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
	assert.Contains(t, text, "have to poll")
}

// TestDoubtsDoNotCollect: a server's words are remembered, and may differ each time. The last line says
// that there are more.
func TestDoubtsDoNotCollect(t *testing.T) {
	t.Parallel()
	var logged logBuffer
	n := openNode(t, "redis://127.0.0.1:1", logged.log()).(*node)
	for i := range 2 * maxDoubts {
		n.doubts.enter(fmt.Sprint("doubt ", i))
	}
	assert.Equal(t, maxDoubts, logged.count(n, "\n"))
	assert.Equal(t, 1, logged.count(n, furtherDoubts))
	assert.Len(t, n.doubts.known, maxDoubts)
}
