package pool

import (
	"log/slog"
	"maps"
	"strings"
	"sync"
	"time"
)

const (
	// maxDoubts limits the kinds of doubts about one server that are remembered.
	maxDoubts = 100

	// repeatDoubts is the time after which a doubt is logged again.
	repeatDoubts = time.Hour

	// logPatience limits the wait of Close for the log, so that the output of a program that ends
	// then is complete.
	logPatience = time.Second
)

// A doubtLog logs the doubts about one server, each once an hour. Two doubts are of one kind if
// they differ only after the first colon, where the server's own text may be. A goroutine writes
// each one after the previous one. A slow log, for example an unread pipe, therefore delays neither
// connections nor Close.
type doubtLog struct {
	log  *slog.Logger
	node string

	mu      sync.Mutex
	known   map[string]time.Time // time of the last record of each kind; at most maxDoubts
	written chan struct{}        // closed when the last record has been written; nil without records
}

func kindOf(doubt string) string {
	kind, _, _ := strings.Cut(doubt, ":")
	return kind
}

// enter logs the new doubts. It does not wait for the log.
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

// forget forgets a doubt, so that its next occurrence is logged again.
func (l *doubtLog) forget(doubt string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, kindOf(doubt))
}

// await returns when all records are written, or after limit.
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
