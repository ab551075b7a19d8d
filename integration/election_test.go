package integration_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/election"
	"github.com/redquorum/redquorum/redlock"
)

// lead campaigns until the process is killed, and says each of its terms.
func lead(r role) error {
	locker, err := r.locker(redlock.NodeTimeout(r.TTL / 4))
	if err != nil {
		return err
	}
	office := election.New(locker, r.Lock)
	return office.Run(context.Background(), fmt.Sprint("candidate ", r.Who), func(ctx context.Context, term election.Term) error {
		say(fmt.Sprint(term.Token()))
		<-ctx.Done()
		return nil
	})
}

func TestALeaderThatIsKilledIsFollowed(t *testing.T) {
	const ttl = 2 * time.Second
	onEveryKind(t, func(t *testing.T, r *rig) {
		r.sweeps(t)
		type term struct {
			who   int
			token string
		}
		terms := make(chan term, 100)
		var candidates []*process
		for who := range 4 {
			p := start(t, role{Name: "lead", URLs: r.URLs(), Lock: "office", TTL: ttl, Who: who})
			candidates = append(candidates, p)
			go func() {
				for line := range p.lines {
					terms <- term{who, line}
				}
			}()
		}
		observer := election.New(r.locker(t), "office")
		var last string
		var killed time.Time
		for n := range candidates {
			select {
			case next := <-terms:
				if n > 0 {
					t.Logf("followed %v after the kill", time.Since(killed).Round(time.Millisecond))
					assert.Less(t, time.Since(killed), ttl+5*slack)
				}
				assert.Greater(t, next.token, last, "terms rise; numbers of one length compare as text")
				last = next.token
				leader, err := observer.Leader(t.Context())
				require.NoError(t, err)
				assert.Equal(t, fmt.Sprint("candidate ", next.who), leader.ID)
				killed = time.Now()
				candidates[next.who].kill()
			case <-time.After(longTTL):
				t.Fatal("nobody follows")
			}
		}
	})
}
