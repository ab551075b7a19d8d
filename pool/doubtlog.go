package pool

import (
	"log/slog"
	"sync"
	"time"
)

const (
	// maxDoubts bounds what is logged of one server, and remembered. A doubt may repeat the
	// server's own words, which can differ each time.
	maxDoubts = 100

	// furtherDoubts is the last that is logged of a server with more.
	furtherDoubts = "it gives more reasons for doubt than are logged"

	// logPatience is how long Close waits for the log, so that a program which ends then has written all.
	logPatience = time.Second
)

// A doubtLog has the doubts about one server, each of which is logged once. A goroutine writes each,
// when the one before has been written. So a log that is too slow, as it is on a pipe that no
// process reads, holds up neither connections nor Close.
type doubtLog struct {
	log  *slog.Logger
	node string

	mu      sync.Mutex
	known   map[string]bool // maxDoubts at most
	written chan struct{}   // closed when the last of them has been written; nil: there is none
}

// enter has the doubts logged that are new. It does not wait for the log.
func (l *doubtLog) enter(doubts ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, doubt := range doubts {
		if l.known[doubt] || len(l.known) == maxDoubts {
			continue
		}
		if len(l.known) == maxDoubts-1 {
			doubt = furtherDoubts
		}
		l.known[doubt] = true
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
	delete(l.known, doubt)
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
