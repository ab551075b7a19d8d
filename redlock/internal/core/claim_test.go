package core

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock/internal/quorum"
)

// TestClaim plays one story of a claim per row. The claim has a TTL of 3 seconds, and the votes of
// two nodes of three.
//
//   - "a: extend" sends a request with the letter a. Others are "extend 1m", "look", "join", and
//     "repair 0" for node 0.
//   - "a: ok gone other" lists the answers to request a, one per node. A node says "gone" if it has no key,
//     "other" if it has the key of another client, "down" if it failed, and "-" before its answer.
//   - The verdict follows the arrow.
//   - "+1s" lets time pass, and "votes 3" is the number of nodes that hold the claim.
func TestClaim(t *testing.T) {
	t.Parallel()
	for name, story := range map[string]string{
		"the third node grants the vote late":              "vote: ok ok ok > ; votes 3",
		"a quorum extends the claim":                       "a: extend; a: ok > ; a: ok ok > extended to a, settled; a: ok ok ok > settled; votes 3",
		"nodes that are down do not end it":                "a: extend; a: down down > ; a: down down ok > settled; votes 2",
		"it ends if a majority has no key":                 "a: extend; a: gone > repair 0; a: gone gone > ends: gone",
		"it ends if a majority has the key of another":     "a: extend; a: other > ; a: other other > ends: gone",
		"a node that has no key gets it again":             "a: extend; a: gone ok ok > repair 0, extended to a, settled; b: repair 0; b: ok > look; votes 3",
		"a node is repaired once at a time":                "a: extend; a: gone > repair 0; b: repair 0; c: extend; c: gone > ; b: ok > look; d: extend; d: gone > repair 0",
		"a repair is no vote":                              "a: extend; a: gone ok > repair 0; b: repair 0; b: ok > look; a: gone ok down > settled",
		"an extension comes too late":                      "a: extend; +4s; a: ok ok > settled",
		"an extension does not shorten it":                 "a: extend 1m; +1ms; b: extend; a: ok ok > extended to a, settled; b: ok ok > settled",
		"a longer one counts after a shorter one":          "a: extend 1m; +1ms; b: extend; b: ok ok > extended to b, settled; a: ok ok > extended to a, settled",
		"but not if a node has refused the shorter one":    "a: extend 1m; +1ms; b: extend; b: ok ok other > extended to b, settled; a: ok ok > settled",
		"an earlier extension adds nothing to a later one": "a: extend; +1ms; b: extend; b: ok ok > extended to b, settled; a: ok ok ok > settled; votes 2",
		"a look finds that a majority has no key":          "a: look; a: gone > renews soon; a: gone gone > ends: missing",
		"a look finds the key of another":                  "a: look; a: other > ; a: other other > ends: missing",
		"a look prolongs nothing":                          "a: look; a: ok ok ok > ; votes 2",
		"a question of readers extends the claim":          "a: join; a: ok ok > extended to a",
		"that nodes let no reader in does not end it":      "a: join; a: other other other > ",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClaimTest(t)
			for line := range strings.SplitSeq(story, "; ") {
				c.run(line)
			}
		})
	}
}

// A claimTest is a claim with the ballots about it.
type claimTest struct {
	*testing.T
	*Claim
	now     clock.Instant
	ballots map[string]*Ballot
}

func newClaimTest(t *testing.T) *claimTest {
	c := &claimTest{T: t, now: clock.Instant(time.Hour), ballots: map[string]*Ballot{}}
	c.Claim = &Claim{Terms: &Terms{TTL: 3 * time.Second, Renew: true}, Value: "value"}
	c.Claim.hold = &Hold{Claim: c.Claim, Terms: c.Claim.Terms}
	c.ballots["vote"] = c.ballot("acquire")
	c.receives("vote", "ok ok")
	c.begin(c.ballots["vote"], c.now.Add(time.Second))
	c.now = c.now.Add(time.Millisecond)
	return c
}

// ballot makes a request.
func (c *claimTest) ballot(kind string) *Ballot {
	kind, of, _ := strings.Cut(kind, " ")
	b := &Ballot{Start: c.now, seq: int64(len(c.ballots) + 1), asked: quorum.All(3), tally: quorum.Tally{Nodes: 3}}
	b.Req = protocol.Request{Op: protocol.OpExtend, Value: c.Value, TTL: c.Claim.Terms.TTL}
	switch kind {
	case "acquire":
		b.purpose, b.Req.Op = toAcquire, protocol.OpAcquire
	case "extend":
		if b.purpose = toExtend; of != "" {
			ttl, err := time.ParseDuration(of)
			require.NoError(c, err)
			c.asksFor(b, ttl)
		}
	case "look":
		b.purpose, b.Req.Op = toLook, protocol.OpLook
	case "join":
		b.purpose, b.Req.Op = toJoin, protocol.OpShare
	case "repair":
		node, err := strconv.Atoi(of)
		require.NoError(c, err)
		b.purpose, b.Req.Op, b.asked = toRepair, protocol.OpAcquire, quorum.Of(node)
		c.troubled().repairs.Add(node)
	default:
		require.Fail(c, kind)
	}
	return b
}

// run lets one step of a story happen.
func (c *claimTest) run(line string) {
	step, want, isStep := strings.Cut(line, " >")
	ballot, what, isBallot := strings.Cut(step, ": ")
	votes, isVotes := strings.CutPrefix(step, "votes ")
	switch {
	case isStep:
		assert.Equal(c, strings.TrimSpace(want), strings.Join(c.receives(ballot, what), ", "), line)
	case isBallot:
		c.ballots[ballot] = c.ballot(what)
	case isVotes:
		assert.Equal(c, votes, strconv.Itoa(c.Votes()))
	default:
		d, err := time.ParseDuration(step)
		require.NoError(c, err)
		c.now = c.now.Add(d)
	}
}

// receives applies the new answers, and returns the verdicts.
func (c *claimTest) receives(name, answers string) (verdicts []string) {
	b := c.ballots[name]
	for node, answer := range strings.Fields(answers) {
		reply := protocol.Reply{Outcome: protocol.Granted}
		switch answer {
		case "-":
			continue
		case "gone":
			reply.Outcome = protocol.Refused
		case "other":
			reply.Outcome, reply.TTL = protocol.Refused, time.Second
		case "down":
			reply.Outcome = protocol.Failed
		}
		if !b.count(node, &reply) || c.provenBy == 0 { // a second answer, or the vote that wins the claim
			continue
		}
		until, renewAt := c.until, c.renewAt
		v := c.take(b, node, b.answerOf(node, c.now), c.now)
		verdict := func(is bool, text string) {
			if is && !slices.Contains(verdicts, text) {
				verdicts = append(verdicts, text)
			}
		}
		verdict(v.end == Gone, "ends: gone")
		verdict(v.end == Missing, "ends: missing")
		verdict(v.isExtended && c.until == b.Deadline() && c.until > until, "extended to "+name)
		verdict(v.repair, "repair "+strconv.Itoa(node))
		verdict(v.look, "look")
		verdict(c.renewAt < renewAt && !v.isExtended, "renews soon")
		verdict(v.isSettled, "settled")
	}
	return verdicts
}
