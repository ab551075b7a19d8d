package core

import (
	"slices"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// Readers and writers. A caller with Shared in its Terms is a reader, and all others are writers.
// Any number of readers hold the lock together, without a writer.
//
// The readers of one process share one claim, so they cost the nodes one entry. Each reader has its
// own hold. The claim is renewed while one of its readers needs renewals, for the longest TTL of
// all, and released after the last reader.
//
// Two rules let writers through a stream of readers. In one process, readers queue behind a writer
// that waits; a reader at the head of the line admits all readers of the line. Among processes, a
// writer that has met readers leaves its intent on the nodes, which then admit no new reader.
// Readers that join a claim of their own process would not notice the intent. So the process asks
// the nodes again, as for a new reader, if they have admitted none for a turn.
//
// The intent ends with the contest, or after its TTL. A writer behind other processes withdraws it:
// the intent would keep out readers that the writer waits for.

// Readers are the additional state of a claim of readers. The hold of such a claim belongs to no
// caller. It stands for the holds of all readers, and its EndBy is the earliest EndBy of these
// holds.
type readers struct {
	keys      *protocol.Shared
	holds     []*Hold
	renewing  int           // holds that need renewals
	confirmed clock.Instant // start of the last request that admitted a reader
	asked     *Ballot       // question in progress, or nil
	askAt     clock.Instant // no question before this time
	refusals  int           // refused questions in a row
	early     int           // questions that failed in a row because nodes first had to record the TTL
}

func newReaders(key string) *readers {
	return &readers{keys: &protocol.Shared{Readers: keys.Readers.Of(key), Intent: keys.Intent.Of(key)}}
}

// speak turns a request about a claim into the request for readers.
func (r *readers) speak(b *Ballot) {
	switch b.Req.Shared = r.keys; b.Req.Op {
	case protocol.OpAcquire:
		b.Req.Op = protocol.OpShare
	case protocol.OpExtend:
		b.Req.Op = protocol.OpExtendShared
	case protocol.OpRelease:
		b.Req.Op = protocol.OpReleaseShared
	}
	if b.purpose == toRepair { // the process is a reader already, so it yields to no writer
		regardless := *r.keys
		regardless.Regardless = true
		b.Req.Shared = &regardless
	}
}

// add adds h to the holds of the claim.
func (c *Claim) add(h *Hold) {
	r := c.readers
	if c.hold == nil {
		c.hold = &Hold{Claim: c, Terms: h.Terms, Since: h.Since}
	}
	if r.holds = append(r.holds, h); h.Terms.Renew {
		r.renewing++
	}
	sooner(&c.hold.EndBy, h.EndBy)
}

// remove removes h from the holds of the claim.
func (c *Claim) remove(h *Hold) {
	r := c.readers
	i := slices.Index(r.holds, h)
	if r.holds = slices.Delete(r.holds, i, i+1); h.Terms.Renew {
		r.renewing--
	}
}

// mayJoin reports whether the reader wants the same claim. Without Renew it needs all of its TTL.
func (c *Claim) mayJoin(j *Caller) bool {
	return c.matches(j.Terms) && (j.Terms.Renew || c.until >= quorum.Deadline(j.arrived, j.Terms.TTL))
}
