package main

import (
	"errors"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A job is not possible here: what it rests on are process groups and signals.
type job struct{}

// An ending is how a command ended.
type ending struct {
	code  int
	swept bool
}

func newJob(string, []string) (*job, error) {
	return nil, errors.New("run is not available on Windows, which has no process groups; use the library")
}

func (*job) close() {}

func (*job) run(*redlock.Lock, time.Duration, time.Duration, []string) (ending, error, error) {
	panic("redlock: there is no job to run")
}

func (*job) linger(*redlock.Lock, time.Duration) bool { return true }
