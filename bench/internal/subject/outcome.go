package subject

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// Outcome is what the error of a Client or Lock of this package says, as one of
// record's outcomes. What the library says of the lock goes before the end of the
// caller's context, which may just have come too.
func Outcome(err error) string {
	var f *failure
	switch {
	case err == nil:
		return record.OK
	case errors.As(err, &f):
		return f.outcome
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return record.Gave
	}
	return record.Failed
}

// A failure is a library's error with its meaning, put down where it occurred:
// later, neither the operation nor the state of the caller's context is known,
// and without them redsync's errors and those of dialling have two meanings.
type failure struct {
	outcome string
	err     error
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

// failed puts down what an error means: what the library says by it, or else that
// the caller's context has ended, or else nothing.
func failed(ctx context.Context, err error, says string) error {
	if says == "" {
		says = record.Failed
		if ended(ctx) {
			says = record.Gave
		}
	}
	return &failure{says, err}
}

// ended is true a moment before ctx.Err tells: what ran into the deadline can
// return before the context's own timer goes off.
func ended(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && !time.Now().Before(deadline)
}
