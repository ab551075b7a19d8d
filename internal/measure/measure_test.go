package measure_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"

	"github.com/hashicorp/go-multierror"
	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// vote returns the error of an attempt for which a single node had another reason.
func vote(kind, node error) error {
	return &redlock.QuorumError{Err: kind, Causes: multierror.Append(nil, &redlock.NodeError{Err: node})}
}

// TestOutcomeIgnoresSingleNodes: the outcome reflects the whole attempt.
func TestOutcomeIgnoresSingleNodes(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"acquired":  nil,
		"held":      vote(redlock.ErrHeld, redlock.ErrClosed),
		"no_quorum": vote(fmt.Errorf("%w: for a reason", redlock.ErrNoQuorum), redlock.ErrHeld),
		"canceled":  vote(context.Canceled, redlock.ErrNoQuorum),
		"timeout":   vote(context.DeadlineExceeded, redlock.ErrHeld),
		"closed":    fmt.Errorf("acquire: %w", redlock.ErrClosed),
		"other":     errors.New("?"),
	} {
		assert.Equal(t, want, measure.Acquisition(err))
		assert.Contains(t, measure.Acquisitions, want)
	}
	assert.Len(t, measure.Acquisitions, 7)
	for want, err := range map[string]error{
		"confirmed":   nil,
		"lost":        vote(redlock.ErrLost, redlock.ErrClosed),
		"closed":      redlock.ErrClosed,
		"unconfirmed": vote(context.Canceled, redlock.ErrLost),
	} {
		assert.Equal(t, want, measure.Release(err))
		assert.Contains(t, measure.Releases, want)
	}
	assert.Equal(t, "unconfirmed", measure.Release(vote(redlock.ErrNoQuorum, redlock.ErrLost)))
	assert.Len(t, measure.Releases, 4)
}

// TestFaultsHaveFewKinds: the text of the error does not matter.
func TestFaultsHaveFewKinds(t *testing.T) {
	t.Parallel()
	said := func(err error) error { return fmt.Errorf("%w (SOME server's words)", err) }
	dial := func(err error) error { return &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", err)} }
	kinds := measure.Faults()
	for want, errs := range map[string][]error{
		"quarantine":   {&protocol.QuarantineError{Left: 1}},
		"settings":     {said(redlock.ErrSettings)},
		"same_server":  {said(redlock.ErrSameServer)},
		"wrong_type":   {said(pool.ErrWrongType)},
		"denied":       {said(pool.ErrAuth), said(pool.ErrPermission)},
		"replica":      {said(pool.ErrReplica)},
		"loading":      {said(pool.ErrLoading)},
		"overload":     {said(pool.ErrFull)},
		"closed":       {said(pool.ErrClosed)},
		"refused":      {dial(syscall.ECONNREFUSED), dial(syscall.Errno(10061))},
		"timeout":      {said(pool.ErrStalled), pool.ErrExpired, dial(os.ErrDeadlineExceeded), context.DeadlineExceeded},
		"disconnected": {said(io.EOF), dial(syscall.ECONNRESET), dial(syscall.Errno(10054)), net.ErrClosed},
		"other":        {errors.New("?"), nil},
	} {
		for _, err := range errs {
			assert.Equal(t, want, measure.Fault(err), "%v", err)
		}
		assert.Contains(t, kinds, want)
	}
	assert.Len(t, kinds, 13)
}

// TestBucketsRise: otherwise a histogram could not be created.
func TestBucketsRise(t *testing.T) {
	t.Parallel()
	for _, m := range measure.Metrics {
		assert.True(t, slices.IsSorted(m.Buckets), m.Name)
		assert.Len(t, slices.Compact(slices.Clone(m.Buckets)), len(m.Buckets), m.Name)
	}
}
