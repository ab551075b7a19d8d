// Package reread has what may change while a process lives: certificates, tokens and passwords, from files
// and from commands.
package reread

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
)

// A Files is what the files of a flag say. They are read at each use, because a process may live for
// longer than a certificate or a token. Their text is compared, and not their times and sizes, which
// stay the same when a file is written twice within one tick of its file system's clock.
type Files[T any] struct {
	files   []string
	parse   func(texts ...[]byte) (T, error) // never repeats a text, which may be secret
	explain func(error) error                // says which flag it is
	Stderr  io.Writer                        // where it tells what is wrong

	mu    sync.Mutex
	seen  string // the texts at the last look, or why there were none
	value T      // of the last files that were good
	wrong error  // what is wrong with the files of the last look
}

// Read reads the files for the first time.
func Read[T any](files []string, stderr io.Writer, explain func(error) error, parse func(texts ...[]byte) (T, error)) (*Files[T], error) {
	r := &Files[T]{files: files, Stderr: stderr, explain: explain, parse: parse}
	if _, err := r.look(); err != nil {
		return nil, r.explain(err)
	}
	return r, nil
}

// Current returns what the files say, or what they said before if they are broken. Two files that do not
// fit together are broken, too, so that they can be replaced one after the other. Each change that is
// not used is told once.
func (r *Files[T]) Current() T {
	value, err := r.look()
	if err != nil {
		fmt.Fprintf(r.Stderr, "redlock: %s; the content that was read before stays in use\n", plain.OneLine(r.explain(err).Error()))
	}
	return value
}

// look returns the value, and an error if the files have changed and are broken.
func (r *Files[T]) look() (T, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.seen != "" && slices.ContainsFunc(r.files, isReadOnce) {
		return r.value, nil
	}
	texts, seen, err := readAll(r.files)
	if seen == r.seen {
		return r.value, nil
	}
	r.seen = seen
	var value T
	if err == nil {
		value, err = r.parse(texts...)
	}
	if r.wrong = err; err == nil {
		r.value = value
	}
	return r.value, err
}

// Wrong returns why the files are not used as the last Current saw them, or nil.
func (r *Files[T]) Wrong() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wrong
}

// readAll returns the texts of files, and what is the same only if they are, or the error is. It is never
// empty.
func readAll(files []string) (texts [][]byte, all string, err error) {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err.Error(), err
		}
		texts = append(texts, text)
		all += strconv.Itoa(len(text)) + ":" + string(text)
	}
	return texts, all, nil
}

// isReadOnce reports whether a file is gone once it was read, as the pipe of a shell's <(COMMAND) is.
func isReadOnce(file string) bool {
	info, err := os.Stat(file)
	return err == nil && info.Mode()&(fs.ModeNamedPipe|fs.ModeCharDevice) != 0
}
