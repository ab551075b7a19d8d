package serve

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"sync"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// A target is a lock whose holders are inspected.
type target struct {
	name    string
	permits int
}

// watchEvery is the time between two inspections of a watched lock.
const watchEvery = 500 * time.Millisecond

// A watch inspects a lock for all requests that watch it. The goroutine ends with the last request,
// or with the server.
type watch struct {
	requests int
	stop     context.CancelFunc
	found    *api.Inspection // last successful inspection; nil before the first
	wrong    *api.Problem    // reason the last inspection was refused, because the request is malformed
	began    time.Time       // start of that inspection
	looked   chan struct{}   // closed and replaced after each inspection
}

// watches are the watches of a server. It is safe for concurrent use.
type watches struct {
	mu  sync.Mutex
	all map[target]*watch // guarded by mu, like isClosed and the fields of each watch
	run sync.WaitGroup    // their goroutines

	isClosed bool // no more goroutines
}

// close prevents further goroutines after the end of the server, and waits for the running ones.
func (all *watches) close() {
	all.mu.Lock()
	all.isClosed = true
	all.mu.Unlock()
	all.run.Wait()
}

// holdings are the leases that hold a lock, by permit; permit 0 for a lock without permits.
type holdings map[int]*lease

// holding returns the valid leases of this server that hold a lock. Shared leases are not included,
// because the servers do not list readers.
func (t *table) holding(name string) holdings {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := holdings{}
	for _, l := range t.byName[name] {
		if l.lost != "" || l.lock == nil || l.granted.Kind == "shared" || !l.lock.Valid() {
			continue
		}
		for _, permit := range l.granted.Permits {
			all[permit] = l
		}
		if l.granted.Permits == nil {
			all[0] = l
		}
	}
	return all
}

// still returns the leases that are also among later ones. A lease that was valid before and after
// an inspection was the holder that the inspection found.
func (of holdings) still(later holdings) holdings {
	for permit, l := range of {
		if later[permit] != l {
			delete(of, permit)
		}
	}
	return of
}

// versionOf returns the version of holders: zero without a holder, and otherwise a number that
// changes with the holders. JavaScript can represent the number exactly. The number is a hash,
// because the values of locks are secret.
func versionOf(holders []string) int64 {
	if len(holders) == 0 {
		return 0
	}
	sum := sha256.New()
	for _, h := range holders {
		binary.Write(sum, binary.BigEndian, int64(len(h)))
		sum.Write([]byte(h))
	}
	return int64(binary.BigEndian.Uint64(sum.Sum(nil))>>11) + 1
}
