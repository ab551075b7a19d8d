// Package measure defines the metrics of a Locker's events, the same for every metrics system: the
// events that each metric counts, the values of labels, which are few and fixed, and the bounds of
// histograms. The packages below contrib export them.
package measure

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// Held is the outcome of an acquisition that was refused because another client holds the lock.
const Held = "held"

// Acquisitions lists all values of Acquisition.
var Acquisitions = []string{"acquired", Held, "no_quorum", "canceled", "timeout", "closed", "other"}

// Acquisition returns the outcome of an acquisition that ended with err. For an error about an
// attempt only its kind counts, and not the errors of single nodes.
func Acquisition(err error) string {
	switch kind := kindOf(err); {
	case kind == nil:
		return "acquired"
	case errors.Is(kind, redlock.ErrHeld):
		return Held
	case errors.Is(kind, redlock.ErrNoQuorum):
		return "no_quorum"
	case errors.Is(kind, context.Canceled):
		return "canceled"
	case errors.Is(kind, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(kind, redlock.ErrClosed):
		return "closed"
	}
	return "other"
}

// Lost is the outcome of a release that showed that the lock had been lost.
const Lost = "lost"

// Releases lists all values of Release.
var Releases = []string{"confirmed", "unconfirmed", Lost, "closed"}

// Release returns the outcome of a release that ended with err.
func Release(err error) string {
	switch kind := kindOf(err); {
	case kind == nil:
		return "confirmed"
	case errors.Is(kind, redlock.ErrLost):
		return Lost
	case errors.Is(kind, redlock.ErrClosed):
		return "closed"
	}
	return "unconfirmed"
}

// kindOf returns the kind of an error about an attempt. Package redlock has the same function for
// its log, and does not export it.
func kindOf(err error) error {
	if q, ok := err.(*redlock.QuorumError); ok {
		return q.Err
	}
	return err
}

// faults are the kinds of a node's faults, the more specific ones first.
var faults = []struct {
	kind string
	errs []error
}{
	{"quarantine", []error{redlock.ErrQuarantine}},
	{"settings", []error{redlock.ErrSettings}},
	{"same_server", []error{redlock.ErrSameServer}},
	{"wrong_type", []error{protocol.ErrWrongType}},
	{"denied", []error{pool.ErrAuth, pool.ErrPermission}},
	{"replica", []error{pool.ErrReplica}},
	{"loading", []error{pool.ErrLoading}},
	{"overload", []error{pool.ErrFull}},
	{"closed", []error{pool.ErrClosed, redlock.ErrClosed}},
	{"refused", []error{syscall.ECONNREFUSED, connectionRefused}},
	{"timeout", []error{pool.ErrStalled, pool.ErrExpired, context.DeadlineExceeded}},
	{"disconnected", []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, connectionReset, connectionAborted}},
}

// otherFault is the kind of all other faults.
const otherFault = "other"

// Faults returns all values of Fault.
func Faults() (kinds []string) {
	for _, f := range faults {
		kinds = append(kinds, f.kind)
	}
	return append(kinds, otherFault)
}

// Fault returns the kind of a node's fault.
func Fault(err error) string {
	for _, f := range faults {
		for _, e := range f.errs {
			if errors.Is(err, e) {
				return f.kind
			}
		}
	}
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "timeout"
	}
	return otherFault
}

// Windows has its own numbers for connection errors, and package syscall does not map them
// (https://pkg.go.dev/golang.org/x/sys/windows lists them by name). On other systems no error has
// such a high number.
const (
	connectionAborted = syscall.Errno(10053)
	connectionReset   = syscall.Errno(10054)
	connectionRefused = syscall.Errno(10061)
)

// waitBuckets are the bounds, in seconds, of the histogram of waiting times: from a handover in
// memory to a wait of minutes.
var waitBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// holdBuckets are the bounds of the histogram of hold times.
var holdBuckets = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 3600}

// replyBuckets are the bounds of the histogram of a node's latency. They end slightly above one
// second, the longest default node timeout.
var replyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5}
