package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// A reread is what the files of a flag say. They are read at each use, because a process may live for
// longer than a certificate or a token. Their text is compared, and not their times and sizes, which
// stay the same when a file is written twice within one tick of its file system's clock.
type reread[T any] struct {
	files   []string
	parse   func(texts ...[]byte) (T, error) // never repeats a text, which may be secret
	explain func(error) error                // says which flag it is
	stderr  io.Writer

	mu    sync.Mutex
	seen  string // the texts at the last look, or why there were none
	value T      // of the last files that were good
}

// begin reads the files for the first time.
func (r *reread[T]) begin() (*reread[T], error) {
	if _, err := r.look(); err != nil {
		return nil, r.explain(err)
	}
	return r, nil
}

// current returns what the files say, or what they said before if they are broken. Two files that do not
// fit together are broken, too, so that they can be replaced one after the other. Each change that is
// not used is told once.
func (r *reread[T]) current() T {
	value, err := r.look()
	if err != nil {
		fmt.Fprintf(r.stderr, "redlock: %s; what was read before is used until that is mended\n", oneLine(r.explain(err).Error()))
	}
	return value
}

// look returns the value, and an error if the files have changed and are broken.
func (r *reread[T]) look() (T, error) {
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
	if err == nil {
		r.value = value
	}
	return r.value, err
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

// authorities reads the certificates of a flag's file.
func (s *servers) authorities(flag, file string) (*reread[*x509.CertPool], error) {
	return (&reread[*x509.CertPool]{
		files: []string{file}, stderr: s.stderr,
		explain: func(err error) error { return wrong(s.flags, flag, "%w", err) },
		parse: func(texts ...[]byte) (*x509.CertPool, error) {
			pool := x509.NewCertPool()
			if !pool.AppendCertsFromPEM(texts[0]) {
				return nil, fmt.Errorf("%s holds no certificate in PEM format", file)
			}
			return pool, nil
		},
	}).begin()
}

// keyPair reads the certificate of a flag's file, and its key.
func (s *servers) keyPair(flag, cert, key string) (*reread[tls.Certificate], error) {
	return (&reread[tls.Certificate]{
		files: []string{cert, key}, stderr: s.stderr,
		explain: func(err error) error {
			return wrong(s.flags, flag, "the certificate and its key: %s", strings.TrimPrefix(err.Error(), "tls: "))
		},
		parse: func(texts ...[]byte) (tls.Certificate, error) { return tls.X509KeyPair(texts[0], texts[1]) },
	}).begin()
}
