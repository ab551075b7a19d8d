package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve"
)

// An auditFile is the file of --audit, with a line for each entry. A goroutine writes it, because a disk that hangs
// must not delay a lock. Entries that cannot be written are counted, and the first one is logged.
type auditFile struct {
	path string // - is standard output
	log  func(string)

	queue  chan serve.AuditEntry
	reopen chan struct{}
	stop   chan struct{}
	done   chan struct{} // closed when the goroutine has ended
	failed atomic.Int64
	isFull atomic.Bool // the queue had no room for an entry since it was last empty

	to        io.WriteCloser // used only by the goroutine, like isFailing
	isFailing bool           // the last entry was not written
	isTorn    bool           // the file ends with a part of an entry
}

const (
	queuedEntries = 10_000
	flushWithin   = 2 * time.Second // limit for the last entries, because a disk may hang
)

// openAudit opens the file, and writes recorded entries until close is called.
func openAudit(path string, stdout io.Writer, log func(string)) (*auditFile, error) {
	a := &auditFile{
		path: path, log: log, queue: make(chan serve.AuditEntry, queuedEntries),
		reopen: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	if path == "-" {
		a.to = unclosed{stdout}
	} else if err := a.open(); err != nil {
		return nil, err
	}
	go a.run()
	return a, nil
}

// An unclosed is a writer that the audit must not close, because it belongs to the process.
type unclosed struct{ io.Writer }

func (unclosed) Close() error { return nil }

// open opens the file by its path. It does not wait for the reader of a pipe.
func (a *auditFile) open() error {
	f, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	if a.to != nil {
		a.to.Close()
	}
	a.to, a.isTorn = f, isTorn(f)
	return nil
}

// isTorn reports whether the file may end with a part of an entry: of an earlier process, or of this
// one if the path still leads to the same file. A file that cannot be read gets an empty line.
func isTorn(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	var last [1]byte
	if of, err := os.Open(f.Name()); err == nil { // f is open for writing only
		defer of.Close()
		of.ReadAt(last[:], info.Size()-1)
	}
	return last[0] != '\n'
}

// Record implements serve.Audit. Refusals get half of the queue, because a client at its limit may
// ask in a loop.
func (a *auditFile) Record(e serve.AuditEntry) {
	if e.Event != serve.AuditRefused || len(a.queue) < queuedEntries/2 {
		select {
		case a.queue <- e:
			return
		default:
		}
	}
	a.failed.Add(1)
	if !a.isFull.Swap(true) {
		go a.log("--audit: too many entries wait to be written; entries are lost until they are written")
	}
}

// Failed implements serve.Audit.
func (a *auditFile) Failed() int64 { return a.failed.Load() }

// rotate opens the file again, because its path may lead to a new one.
func (a *auditFile) rotate() {
	select {
	case a.reopen <- struct{}{}:
	default: // it will be opened
	}
}

// close writes the queued entries, and closes the file.
func (a *auditFile) close() {
	close(a.stop)
	select {
	case <-a.done:
	case <-time.After(flushWithin):
		a.log(fmt.Sprintf("--audit: the disk hangs; about %d entries are lost", len(a.queue)+1))
	}
}

// run writes entries until close is called and the queue is empty.
func (a *auditFile) run() {
	defer close(a.done)
	for {
		select {
		case e := <-a.queue:
			a.write(e)
		case <-a.reopen:
			if a.path == "-" {
				continue
			}
			if err := a.open(); err != nil {
				a.log(fmt.Sprintf("--audit: %v; entries still go to the file that was open before", err))
			}
		case <-a.stop:
			for len(a.queue) > 0 {
				a.write(<-a.queue)
			}
			a.to.Close()
			return
		}
	}
}

// write writes one entry.
func (a *auditFile) write(e serve.AuditEntry) {
	line, err := json.Marshal(e)
	if err == nil {
		if line = append(line, '\n'); a.isTorn {
			line = append([]byte("\n"), line...)
		}
		var n int
		if n, err = a.to.Write(line); n > 0 {
			a.isTorn = line[n-1] != '\n'
		}
	}
	if err != nil {
		a.failed.Add(1)
	}
	if len(a.queue) == 0 {
		a.isFull.Store(false)
	}
	a.note(err)
}

// note logs the first of several errors.
func (a *auditFile) note(err error) {
	if err != nil && !a.isFailing {
		a.log(fmt.Sprintf("--audit: %v; entries are lost until it can be written again", err))
	}
	a.isFailing = err != nil
}
