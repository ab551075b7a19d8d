package history

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// A Log takes events from several goroutines and writes them as lines. Each is
// written at once and by one call: a client that is killed has told all it did.
type Log struct {
	mu   sync.Mutex
	out  io.Writer
	err  error
	last map[topic]int64
}

type topic struct {
	kind Kind
	name string
}

// NewLog returns a Log that writes to out.
func NewLog(out io.Writer) *Log { return &Log{out: out, last: map[topic]int64{}} }

// Add writes e. The error is that of Err.
func (l *Log) Add(e Event) error {
	line, err := json.Marshal(e)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.out.Write(append(line, '\n'))
	}
	at := topic{e.Kind, e.Name}
	l.last[at] = max(l.last[at], e.At)
	if l.err == nil {
		l.err = err
	}
	return l.err
}

// Last returns when the latest event of a kind about a name was; zero if there
// was none.
func (l *Log) Last(kind Kind, name string) int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last[topic{kind, name}]
}

// Err returns the first error: from there on the history has holes.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Read calls each with every event until the end of in. A last line without an
// end is left out: its writer was killed.
func Read(in io.Reader, each func(Event)) error {
	d := json.NewDecoder(in)
	for n := 1; ; n++ {
		var e Event
		switch err := d.Decode(&e); {
		case err == nil:
			each(e)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return nil
		default:
			return fmt.Errorf("history: event %d: %w", n, err)
		}
	}
}
