package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/bench/internal/subject"
)

// fake is a library whose behaviour a test sets. It excludes no caller.
type fake struct {
	acquire func(ctx context.Context, name string) error
	release func(ctx context.Context) error
	valid   time.Duration // after now; zero: an hour
	lost    chan struct{}
}

func (f *fake) Acquire(ctx context.Context, name string) (subject.Lock, error) {
	if f.acquire != nil {
		if err := f.acquire(ctx, name); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func (f *fake) Release(ctx context.Context) error {
	if f.release != nil {
		return f.release(ctx)
	}
	return nil
}

func (f *fake) Close() error { return nil }

func (f *fake) Until() time.Time {
	select {
	case <-f.lost:
		return time.Time{}
	default:
	}
	if f.valid == 0 {
		return time.Now().Add(time.Hour)
	}
	return time.Now().Add(f.valid)
}

// takes is a library in which everything takes so long.
func takes(d time.Duration) *fake {
	return &fake{
		acquire: func(ctx context.Context, _ string) error { return sleep(ctx, d) },
		release: func(ctx context.Context) error { return sleep(ctx, d) },
	}
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// opens is a subject of that library.
func opens(f *fake) subject.Spec {
	return subject.Spec{Open: func(context.Context, []string, subject.Config) (subject.Client, error) { return f, nil }}
}

// fakes are the subjects of client processes, by name.
var fakes = map[string]subject.Spec{
	"fast": opens(takes(100 * time.Microsecond)),
	"unopened": {Open: func(_ context.Context, urls []string, _ subject.Config) (subject.Client, error) {
		return nil, fmt.Errorf("cannot reach %s", urls[0])
	}},
	"refusing": opens(&fake{acquire: func(ctx context.Context, _ string) error {
		_ = sleep(ctx, time.Millisecond)
		return fmt.Errorf("dial redis://user:secret@127.0.0.1:%d: refused", time.Now().UnixNano()%1000)
	}}),
	"crashing": opens(&fake{acquire: func(context.Context, string) error {
		fmt.Println("printing to stdout is no part of the protocol")
		fmt.Fprintln(os.Stderr, "the reason, and s3cret")
		os.Exit(3)
		return nil
	}}),
	"hanging": {Open: func(context.Context, []string, subject.Config) (subject.Client, error) { select {} }},
	"renewing": {Renews: true, Open: func(context.Context, []string, subject.Config) (subject.Client, error) {
		return &forgetful{}, nil
	}},
	"driving": {Drive: func(ctx context.Context, _ []string, _ subject.Config, cycled subject.Cycled) error {
		for ctx.Err() == nil {
			began := time.Now()
			_ = sleep(ctx, time.Millisecond)
			cycled(0, began, time.Since(began), 0)
		}
		return nil
	}},
	"driven out": {Drive: func(context.Context, []string, subject.Config, subject.Cycled) error {
		return errors.New("a wrong answer")
	}},
}

// forgetful renews no lock whose name ends in 3.
type forgetful struct{ fake }

func (f *forgetful) Acquire(_ context.Context, name string) (subject.Lock, error) {
	lock := &fake{lost: make(chan struct{})}
	if name[len(name)-1] == '3' {
		close(lock.lost)
	}
	return lock, nil
}

// TestMain is the client process too, as the main of the benchmark is.
func TestMain(m *testing.M) {
	library := find
	find = func(names []string) ([]subject.Spec, error) {
		if spec, ok := fakes[names[0]]; ok {
			spec.Name = names[0]
			return []subject.Spec{spec}, nil
		}
		return library(names)
	}
	if IsClient() {
		os.Exit(Main())
	}
	goleak.VerifyTestMain(m)
}
