package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve"
)

// A stateFile is the path of --state. Its file keeps sessions and locks across a restart. Empty:
// none.
type stateFile string

// take returns the state of the last redlock serve, which may be empty. A file that cannot be read
// stays in place.
func (p stateFile) take() (left serve.State, err error) {
	if left, err = reread.First(p.read); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return left, fmt.Errorf("%w: remove the file, unless an older redlock serve wrote it", err)
	}
	return p.claim()
}

// claim renames the file before it reads the file. So only one of several processes that have found
// the file continues with it, and with its latest content. It returns an error if write could not
// write the file.
func (p stateFile) claim() (left serve.State, err error) {
	f, err := p.sibling()
	if err != nil {
		return left, fmt.Errorf("cannot be written, so no lock would outlive a restart: %w", err)
	}
	f.Close()
	err = os.Rename(string(p), f.Name())
	if err == nil {
		if left, err = stateFile(f.Name()).read(); err != nil {
			return left, cmp.Or(os.Rename(f.Name(), string(p)), err)
		}
	} else if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return left, errors.Join(err, os.Remove(f.Name()))
}

// read reads the file. An empty one has no sessions.
func (p stateFile) read() (left serve.State, err error) {
	text, err := os.ReadFile(string(p))
	if err != nil || len(text) == 0 {
		return left, err
	}
	if err = json.Unmarshal(text, &left); err == nil {
		err = left.Check()
	}
	if err != nil {
		err = fmt.Errorf("%s is not a state that this redlock serve can read: %w", p, err)
	}
	return left, err
}

// write writes the file atomically. It calls before when the file is complete but does not have its
// final name yet, and removes the file if before returns an error.
func (p stateFile) write(state serve.State, before func() error) error {
	text, err := json.Marshal(state)
	if err != nil {
		return err
	}
	f, err := p.sibling()
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = before()
	}
	if err == nil {
		err = os.Rename(f.Name(), string(p))
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// sibling creates a file in the same folder, readable only for this user.
func (p stateFile) sibling() (*os.File, error) {
	return os.CreateTemp(filepath.Dir(string(p)), filepath.Base(string(p))+".*")
}
