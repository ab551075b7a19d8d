package core

import (
	"fmt"
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

// TestTokens plays one attempt with the token 1000 per row. A row has the answers of three nodes to
// the attempt and to its raises. The next step of the attempt follows each answer. A node says "ok"
// if it accepts the token, the number that it had accepted before, "no" if it refuses the lock, and
// "-" before its answer. In a raise it says "far" if the number is too far from its clock. "over"
// is the end of the time for answers. Clocks may differ by 10 microseconds.
func TestTokens(t *testing.T) {
	t.Parallel()
	steps := map[tokenStep]string{tokenAccepted: "accepted", tokenWaits: "waits", tokenHurries: "hurries", tokenRefused: "refused"}
	for name, story := range map[string]string{
		"a quorum accepts":                                               "ok ok - > accepted",
		"all nodes that have the claim accept":                           "ok ok no > accepted",
		"one node has accepted a higher number":                          "ok 1010 - > raise to 1011",
		"one node has accepted a higher number, and two accept":          "ok 1010 ok > accepted",
		"two nodes agree on the next number":                             "1010 1010 - > raise to 1011",
		"a raise is above the numbers of all nodes":                      "1010 1015 1012 > raise to 1016",
		"a raise is above the number that the vote has proposed":         "ok 999 - over > raise to 1001",
		"the clock of one node is far ahead":                             "1010 9000 ok > raise to 1011",
		"the clocks of two nodes are far apart":                          "1010 9000 - > hurries",
		"all nodes that have the claim have answered":                    "1010 9000 no > raise to 9001",
		"a raise is accepted":                                            "1010 1010 - > raise to 1011; ok ok - > accepted",
		"a raise waits for its answers":                                  "1010 1010 - > raise to 1011; ok - - > waits",
		"a raise is accepted by the third":                               "1010 1010 - > raise to 1011; ok far - > waits; ok far ok > accepted",
		"a raise is not answered in time":                                "1010 1010 - > raise to 1011; ok - - over > refused",
		"a raise was too far from the clocks":                            "1010 9000 no > raise to 9001; far ok no > refused",
		"nodes have accepted a higher number since":                      "1010 1010 - > raise to 1011; 1020 1020 - > raise to 1021; ok ok - > accepted",
		"nodes have accepted a higher number since, one after the other": "1010 1010 - > raise to 1011; 1020 - - > waits; 1020 no - > hurries; 1020 no 1020 > raise to 1021",
		"a vote does not raise its token for a third time":               "1010 1010 - > raise to 1011; 1020 1020 - > raise to 1021; 1030 1030 - > refused",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &Group{Propose: func() int64 { return 1000 }, Slack: 10 * time.Microsecond}
			now := clock.Instant(time.Hour)
			vote := newTokenBallot(toAcquire, now)
			block := newTokens(g, "x", 1, now)
			block.fence(&vote.Req, protocol.OpAcquireFenced)
			for line := range strings.SplitSeq(story, "; ") {
				answers, want, _ := strings.Cut(line, " > ")
				asked := vote
				if block.raise != nil {
					asked = block.raise
				}
				inTime := asked.hear(t, answers)
				step, first := block.step(vote, inTime)
				did := steps[step]
				if step == tokenRaised {
					did = fmt.Sprintf("raise to %d", first)
					block.raiseTo(newTokenBallot(toRaise, now), first, 1)
				}
				assert.Equal(t, want, did, "%s: %s", story, line)
			}
		})
	}
}

func newTokenBallot(p purpose, now clock.Instant) *Ballot {
	return &Ballot{Start: now, purpose: p, asked: quorum.All(3), tally: quorum.Tally{Nodes: 3}, floors: &floors{}}
}

// hear counts the answers of nodes that have not answered before.
func (b *Ballot) hear(t *testing.T, answers string) (inTime bool) {
	inTime = true
	for node, answer := range strings.Fields(answers) {
		reply := protocol.Reply{Outcome: protocol.Granted}
		switch answer {
		case "-":
			continue
		case "over":
			inTime = false
			continue
		case "no":
			reply.Outcome = protocol.Refused
		case "far":
			reply.Floor = b.Req.Token - 1
		case "ok":
		default:
			floor, err := strconv.ParseInt(answer, 10, 64)
			require.NoError(t, err)
			reply.Floor = floor
		}
		b.count(node, &reply)
	}
	return inTime
}

// TestEachHolderGetsTheNextTokenOfABlock: each holder gets the next number. The numbers of a raise need a quorum first.
func TestEachHolderGetsTheNextTokenOfABlock(t *testing.T) {
	t.Parallel()
	g := &Group{Propose: func() int64 { return 1000 }}
	began := clock.Instant(time.Hour)
	block := newTokens(g, "x", 2, began)
	assert.Equal(t, []int64{1000, 1001}, []int64{block.take(), block.take()})
	assert.False(t, block.hasNext(), "it is used up")

	raise := newTokenBallot(toRaise, began.Add(300*time.Microsecond))
	block.raiseTo(raise, 1002, maxBlock)
	assert.EqualValues(t, 300, raise.Req.Block, "no more numbers than microseconds have passed")
	raise.hear(t, "ok")
	block.raised(raise)
	assert.False(t, block.hasNext(), "a minority has accepted them")
	raise.hear(t, "- ok")
	block.raised(raise)
	assert.True(t, block.hasNext())
	assert.EqualValues(t, 1002, block.take())

	for acquisition, size := range map[time.Duration]int64{0: minBlock, time.Millisecond / 2: 2000, time.Second: maxBlock} {
		assert.Equal(t, size, blockOf(acquisition))
	}
	var none *tokens
	assert.True(t, none.hasNext(), "a claim without tokens needs none")
}
