package measure

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// faults are the kinds of a node's faults, the more particular first.
var faults = []struct {
	kind string
	errs []error
}{
	{"quarantine", []error{redlock.ErrQuarantine}},
	{"settings", []error{redlock.ErrSettings}},
	{"same_server", []error{redlock.ErrSameServer}},
	{"wrong_type", []error{redlock.ErrWrongType}},
	{"denied", []error{pool.ErrAuth, pool.ErrPermission}},
	{"replica", []error{pool.ErrReplica}},
	{"loading", []error{pool.ErrLoading}},
	{"overload", []error{pool.ErrFull}},
	{"closed", []error{pool.ErrClosed, redlock.ErrClosed}},
	{"refused", []error{syscall.ECONNREFUSED, connectionRefused}},
	{"timeout", []error{pool.ErrStalled, pool.ErrExpired, context.DeadlineExceeded}},
	{"disconnected", []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE, connectionReset, connectionAborted}},
}

// otherFault is the kind of all the rest.
const otherFault = "other"

// Faults returns all values of Fault.
func Faults() (kinds []string) {
	for _, f := range faults {
		kinds = append(kinds, f.kind)
	}
	return append(kinds, otherFault)
}

// Fault is the kind of a node's fault.
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

// Windows has numbers of its own for what it says of connections, and package
// syscall does not map them (https://pkg.go.dev/golang.org/x/sys/windows has
// them by name). Elsewhere no error has so high a number.
const (
	connectionAborted = syscall.Errno(10053)
	connectionReset   = syscall.Errno(10054)
	connectionRefused = syscall.Errno(10061)
)
