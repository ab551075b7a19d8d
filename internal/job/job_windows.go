package job

import (
	"errors"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// EndingSignals end this process, or what it waits for.
var EndingSignals = []syscall.Signal{syscall.SIGINT, syscall.SIGTERM}

// A Job is not possible here, because it rests on process groups and signals.
type Job struct{}

// New returns an error.
func New(Command) (*Job, error) {
	return nil, errors.New("run is not available on Windows, which has no process groups; use the library")
}

// Close does nothing.
func (*Job) Close() {}

// Run is never called.
func (*Job) Run(*redlock.Lock, []string) (Result, error) {
	panic("redlock: there is no job to run")
}

// Linger is never called.
func (*Job) Linger(*redlock.Lock, time.Duration) bool { return true }
