package subject

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/internal/record"
	"github.com/redquorum/redquorum/redlock"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Err: errors.New("refused")}
	fault := &redsync.RedisError{Err: refused}
	taken := &redsync.ErrNodeTaken{}
	gone := redsync.ErrLockAlreadyExpired
	running, over := t.Context(), ending(t)

	acquired := func(ctx context.Context, err error) error { return failed(ctx, err, redsyncRefused(ctx, err)) }
	released := func(ctx context.Context, err error) error { return failed(ctx, err, redsyncKept(ctx, err)) }
	single := func(ctx context.Context, err error) error { return failed(ctx, err, bsmSays(ctx, err)) }
	ours := func(err error) error { return &failure{redquorumSays(err), err} }

	for _, c := range []struct {
		what string
		err  error
		want string
	}{
		{"none", nil, record.OK},
		{"a context's", fmt.Errorf("x: %w", context.DeadlineExceeded), record.Gave},
		{"unknown", io.EOF, record.Failed},

		{"redquorum: held", ours(&redlock.QuorumError{Err: redlock.ErrHeld}), record.Held},
		{"redquorum: outage", ours(&redlock.QuorumError{Err: redlock.ErrNoQuorum}), record.NoQuorum},
		{"redquorum: lost", ours(redlock.ErrLost), record.Lost},
		{"redquorum: context", ours(&redlock.QuorumError{Err: context.Canceled}), record.Gave},
		{"redquorum: closed", ours(redlock.ErrClosed), record.Failed},

		{"redsync: a majority taken", acquired(running, &redsync.ErrTaken{Nodes: []int{0, 1, 2}}), record.Held},
		{"redsync: the same when the caller has gone", acquired(over, &redsync.ErrTaken{Nodes: []int{0, 1, 2}}), record.Held},
		{"redsync: a split vote", acquired(running, errors.Join(taken, taken)), record.Held},
		{"redsync: faults", acquired(running, errors.Join(errors.Join(fault, fault), fault)), record.NoQuorum},
		{"redsync: faults for the caller has gone", acquired(over, errors.Join(fault, fault)), record.Gave},
		{"redsync: both", acquired(running, errors.Join(fault, taken)), record.Failed},
		{"redsync: nothing said", acquired(running, redsync.ErrFailed), record.Failed},
		{"redsync: the caller has gone", acquired(over, redsync.ErrFailed), record.Gave},
		{"redsync: released late", released(running, errors.Join(gone, gone, gone)), record.Lost},
		{"redsync: released when others had it", released(running, &redsync.ErrTaken{Nodes: []int{0, 1, 2}}), record.Lost},
		{"redsync: released without servers", released(running, errors.Join(fault, fault, fault)), record.NoQuorum},
		{"redsync: released with the caller gone", released(over, errors.Join(fault, fault, fault)), record.Gave},

		{"bsm: held", single(running, redislock.ErrNotObtained), record.Held},
		{"bsm: lost", single(running, redislock.ErrLockNotHeld), record.Lost},
		{"bsm: no server", single(running, refused), record.NoQuorum},
		{"bsm: connection lost", single(running, io.EOF), record.NoQuorum},
		{"bsm: the caller has gone", single(over, context.Canceled), record.Gave},
		{"bsm: its own deadline is not the caller's", single(running, context.DeadlineExceeded), record.Failed},
		{"bsm: dialling has deadlines of its own", single(running, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}), record.NoQuorum},
	} {
		assert.Equal(t, c.want, Outcome(c.err), c.what)
	}
	require.ErrorIs(t, acquired(running, redsync.ErrFailed), redsync.ErrFailed)
}

func TestFind(t *testing.T) {
	t.Parallel()
	found, err := Find([]string{"bsm", "redquorum"})
	require.NoError(t, err)
	require.Len(t, found, 2)
	assert.Equal(t, "bsm", found[0].Name)
	assert.Equal(t, "redquorum", found[1].Name)
	_, err = Find([]string{"redsink"})
	require.ErrorContains(t, err, `"redsink"`)
	for _, s := range All() {
		require.ErrorContains(t, err, s.Name)
		assert.NotEmpty(t, s.Title, s.Name)
		assert.NotEmpty(t, s.Note, s.Name)
		assert.True(t, (s.Open == nil) != (s.Drive == nil), s.Name)
	}
}
