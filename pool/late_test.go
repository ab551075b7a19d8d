package pool

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/relay"
	"github.com/redquorum/redquorum/pool/internal/link"
)

// TestLateVoteOfAServerThatFailedOverAndBackDoesNotCount: the network holds a vote while its server becomes the replica
// of an older copy and is promoted again. The process is the same, and so is the record, but the server lost a lock.
func TestLateVoteOfAServerThatFailedOverAndBackDoesNotCount(t *testing.T) {
	t.Parallel()
	for name, standby := range map[string]bool{"one server": false, "a node with a standby": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPair(t)
			wire, err := relay.New(p.addr(0))
			require.NoError(t, err)
			t.Cleanup(wire.Close)
			url, direct := wire.URL(), p.URLs()[0]
			if standby {
				url, direct = url+"?standby="+p.addr(1), p.url()
			}
			n, holder := openNode(t, url), openNode(t, direct)
			run := do(t, holder, protocol.Request{Op: protocol.OpAdmit, Key: "redlock:epoch", Admit: &protocol.Admission{}}).Run
			written := do(t, holder, protocol.Request{Op: protocol.OpAdmit, Key: "redlock:epoch", Admit: &protocol.Admission{
				New: "a record", Run: run, Life: time.Hour,
			}})
			require.Equal(t, "a record", written.Epoch.Record, "%v", written.Err)
			granted(t, n, "before")
			eventually(t, func() bool { return p.do(1, "EXISTS", "redlock:epoch").(int64) == 1 }, "the copy has the record")
			p.promote(1)
			require.Equal(t, protocol.Granted, do(t, holder, recorded("held")).Outcome)

			require.Equal(t, protocol.Granted, do(t, n, recorded("just before")).Outcome)
			struck := wire.Struck()
			wire.Break(relay.Requests, relay.Fault{Mode: relay.Hold})
			late := submit(t, n, recorded("held"))
			eventually(t, func() bool { return wire.Struck() > struck }, "the vote is on its way")
			p.demote(0)
			p.promote(0)
			require.EqualValues(t, 0, p.do(0, "EXISTS", "held"), "the server lost the lock")
			require.EqualValues(t, 1, p.do(0, "EXISTS", "redlock:epoch"))
			wire.Heal()

			vote := late.next(t)
			assert.Equal(t, protocol.Unknown, vote.Outcome)
			assert.ErrorIs(t, vote.Err, link.ErrSucceeded)
		})
	}
}
