package pool

import (
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"
)

const (
	// maxDoubts bounds the kinds of doubts about one server that are remembered.
	maxDoubts = 100

	// repeatDoubts is how long a doubt is not logged again.
	repeatDoubts = time.Hour

	// logPatience is how long Close waits for the log, so that a program which ends then has written all.
	logPatience = time.Second
)

// A doubtLog has the doubts about one server, each of which is logged once an hour. Doubts are of one kind if
// they differ only behind the first colon, where the server's own words may stand. A goroutine writes each,
// when the one before has been written. So a log that is too slow, as it is on a pipe that no
// process reads, holds up neither connections nor Close.
type doubtLog struct {
	log  *slog.Logger
	node string

	mu      sync.Mutex
	known   map[string]time.Time // when each kind was logged last; maxDoubts at most
	written chan struct{}        // closed when the last of them has been written; nil: there is none
}

func kindOf(doubt string) string {
	kind, _, _ := strings.Cut(doubt, ":")
	return kind
}

// enter has the doubts logged that are new. It does not wait for the log.
func (l *doubtLog) enter(doubts ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(l.known, func(_ string, at time.Time) bool { return now.Sub(at) >= repeatDoubts })
	for _, doubt := range doubts {
		kind := kindOf(doubt)
		if _, known := l.known[kind]; known || len(l.known) == maxDoubts {
			continue
		}
		l.known[kind] = now
		before, written := l.written, make(chan struct{})
		l.written = written
		go func() {
			defer close(written)
			if before != nil {
				<-before
			}
			l.log.Warn("pool: a server gives reason for doubt", "node", l.node, "doubt", doubt)
		}()
	}
}

// forget has a doubt logged again when it comes again.
func (l *doubtLog) forget(doubt string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, kindOf(doubt))
}

// await returns when all is written, or after limit.
func (l *doubtLog) await(limit time.Duration) {
	l.mu.Lock()
	written := l.written
	l.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-time.After(limit):
	}
}
