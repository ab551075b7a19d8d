package serve

import (
	"cmp"
	"context"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/long"
)

// A work is a time in which a client may work under a lease.
type work struct {
	lease    string
	from, to time.Time
}

// TestNoTwoClientsMayWorkAtTheSameTime: clients that poll, stop to, die, release and come too late, at
// servers of which one ends after the other, each with what it was told as its only knowledge.
func TestNoTwoClientsMayWorkAtTheSameTime(t *testing.T) {
	t.Parallel()
	seeds, total := uint64(12), 0
	switch {
	case testing.Short():
		seeds = 6
	case long.Enabled():
		seeds = 100
	}
	for seed := range seeds {
		synctest.Test(t, func(t *testing.T) {
			servers, first := start(t, Config{})
			second := New(servers.Locker(), Config{TTL: 10 * time.Second})
			t.Cleanup(func() { second.Close(t.Context()) })
			var mu sync.Mutex
			var all []work
			var clients sync.WaitGroup
			for i := range 6 {
				clients.Go(func() {
					r := rand.New(rand.NewPCG(seed, uint64(i)))
					for range 6 {
						s := []*Server{first, second}[r.IntN(2)]
						did, ok := workOnce(t, s, r)
						if ok {
							mu.Lock()
							all = append(all, did)
							mu.Unlock()
						}
						time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
					}
				})
			}
			time.Sleep(30 * time.Second)
			grace, cancel := context.WithTimeout(t.Context(), time.Duration(seed%4)*2*time.Second)
			first.Close(grace)
			cancel()
			clients.Wait()
			total += len(all)
			slices.SortFunc(all, func(a, b work) int { return cmp.Or(a.from.Compare(b.from), a.to.Compare(b.to)) })
			for i := 1; i < len(all); i++ {
				assert.False(t, all[i].from.Before(all[i-1].to), "seed %d: %v, and %v", seed, all[i-1], all[i])
			}
		})
	}
	assert.Greater(t, total, 4*int(seeds), "locks that were granted")
}

// workOnce takes the lock, and keeps it for a while in one of the ways in which clients do.
func workOnce(t *testing.T, s *Server, r *rand.Rand) (did work, ok bool) {
	c := &client{t: t, server: s}
	a := c.ask("POST", "/v1/sessions", `{"ttl_ms":`+text(1000+r.Int64N(12_000))+`}`)
	if a.status != http.StatusCreated {
		return did, false
	}
	c.session = a.session.Session
	a = c.ask("POST", "/v1/locks", `{"name":"a","wait_ms":60000,"ttl_ms":`+text(1000+r.Int64N(15_000))+`}`)
	if a.status != http.StatusCreated {
		return did, false
	}
	did = work{a.lease.Lease, time.Now(), a.end()}
	for range r.IntN(6) {
		time.Sleep(time.Duration(r.Int64N(4000)) * time.Millisecond)
		seen := ""
		if r.IntN(2) == 0 {
			seen = "?wait_ms=3000&seen=" + text(a.session.Version)
		}
		asked := time.Now()
		if !asked.Before(did.to) { // too late: it must have ended its work
			break
		}
		a = c.ask("GET", "/v1/session"+seen, "")
		if a.status != http.StatusOK || len(a.session.Leases) == 0 || !a.session.Leases[0].Held {
			if now := time.Now(); now.Before(did.to) { // told that it is over
				did.to = now
			}
			return did, true
		}
		if end := asked.Add(millis(a.session.Leases[0].ValidFor)); time.Now().Before(did.to) && end.After(did.to) {
			did.to = end
		}
	}
	if now := time.Now(); r.IntN(2) == 0 && now.Before(did.to) {
		did.to = now
		c.ask("DELETE", "/v1/locks/"+did.lease, "")
	} // or it dies
	return did, true
}
