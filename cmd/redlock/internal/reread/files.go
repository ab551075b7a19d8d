// Package reread provides settings that may change while a process lives: certificates, tokens and
// passwords, from files and from commands.
package reread

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
)

// A Files is the parsed content of the files of a flag. The files are read at each use, because a
// process may live longer than a certificate or a token. The contents are compared instead of times
// and sizes, because these stay the same if a file is written twice within one tick of its file
// system's clock.
type Files[T any] struct {
	files   []string
	parse   func(texts ...[]byte) (T, error) // must not quote a text, which may be secret
	explain func(error) error                // adds the name of the flag
	Stderr  io.Writer                        // for warnings

	mu      sync.Mutex
	seen    string                       // texts at the last look, or the error
	value   T                            // value of the last valid files
	wrong   error                        // error of the files at the last look
	hanging <-chan content               // read in progress that is late; nil: none
	read    func(files []string) content // for tests
}

// A content is the content of files.
type content struct {
	texts [][]byte
	all   string // changes if and only if a text or the error does; never empty
	err   error
}

// patience is the limit for reading files again, because a disk may hang. After that all callers use
// the previous value at once until the disk answers.
const patience = 2 * time.Second

// Read reads the files for the first time.
func Read[T any](files []string, stderr io.Writer, explain func(error) error, parse func(texts ...[]byte) (T, error)) (*Files[T], error) {
	r := &Files[T]{files: files, Stderr: stderr, explain: explain, parse: parse, read: readAll}
	if _, err := r.look(); err != nil {
		return nil, r.explain(err)
	}
	return r, nil
}

// Current returns the value of the files, or their previous value if they are invalid. Two files
// that do not fit together are invalid, too, so that they can be replaced one at a time. Each
// rejected change is reported once.
func (r *Files[T]) Current() T {
	value, err := r.look()
	if err != nil {
		fmt.Fprintf(r.Stderr, "redlock: %s; the content that was read before stays in use\n", plain.OneLine(r.explain(err).Error()))
	}
	return value
}

// look returns the value, and an error if the files have changed and are invalid.
func (r *Files[T]) look() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, isNew := r.find()
	if !isNew || found.all == r.seen {
		return r.value, nil
	}
	r.seen = found.all
	value, err := r.value, found.err
	if err == nil {
		value, err = r.parse(found.texts...)
	}
	if r.wrong = err; err == nil {
		r.value = value
	}
	return r.value, err
}

// find reads the files. It returns false if they can be read only once, or if the disk still hangs.
// The caller must hold mu.
func (r *Files[T]) find() (found content, isNew bool) {
	if r.hanging != nil {
		select {
		case <-r.hanging: // the files may have changed since
			r.hanging = nil
		default:
			return found, false
		}
	}
	isFirst, done := r.seen == "", make(chan content, 1)
	go func() {
		defer close(done)
		if isFirst || !slices.ContainsFunc(r.files, isReadOnce) {
			done <- r.read(r.files)
		}
	}()
	var late <-chan time.Time
	if !isFirst {
		late = time.After(patience)
	}
	select {
	case found, isNew = <-done:
		return found, isNew
	case <-late:
		r.hanging = done
		err := fmt.Errorf("not read within %v: the disk hangs", patience)
		return content{all: err.Error(), err: err}, true
	}
}

// Wrong returns the reason the last Current did not use the files, or nil.
func (r *Files[T]) Wrong() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrong
}

// readAll reads files.
func readAll(files []string) (all content) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return content{all: err.Error(), err: err}
		}
		all.texts = append(all.texts, text)
		all.all += strconv.Itoa(len(text)) + ":" + string(text)
	}
	return all
}

// isReadOnce reports whether a file can be read only once, like the pipe of a shell's <(COMMAND).
func isReadOnce(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0
}

// reading counts the files that are being read before the first lock. This can take any time, for
// example for a pipe without a writer, and no context ends it.
var reading atomic.Int32

// First reads a setting that is needed to start.
func First[T any](read func() (T, error)) (T, error) {
	reading.Add(1)
	defer reading.Add(-1)
	return read()
}

// IsFirst reports whether a First is in progress.
func IsFirst() bool { return reading.Load() > 0 }
