// Package load makes the load of one trial: callers in one or several client processes that acquire
// and release locks.
//
// Callers compete as programs in production do, so they need processes of their own. Within one
// process, Go's scheduler passes the processor from caller to caller. One library without a queue
// then runs twice as many cycles per second, and another one a hundredth.
//
// Run starts this program again for each client process, and main then calls Main. Parent and child
// exchange JSON over the child's stdin and stdout:
//
//	parent -> child  a Job                         (connect and warm up)
//	child -> parent  an empty result               (ready)
//	parent -> child  the time to begin
//	child -> parent  the result
//
// A child stops when its stdin closes, so no child outlives its parent.
package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/internal/record"
)

// A Job is the part of one trial that a client process carries out.
type Job struct {
	Subject  string      // for subject.Find
	Round    int         // from zero; each round has its own names, so locks of an earlier round do not block callers
	URLs     []string    // of the nodes
	Load     record.Load // of all processes
	Sampling bool        // Run also returns the single acquisitions
	Process  int         // number of the process, from zero; Run sets it
}

// share returns the process's part of n callers or locks: from first up to, not including, end.
func (j Job) share(n int) (first, end int) {
	return n * j.Process / j.Load.Processes, n * (j.Process + 1) / j.Load.Processes
}

// A result is the part of the trial that one process has measured.
type result struct {
	Error   string       `json:",omitempty"`
	Trial   record.Trial // Cycles, Acquire, Errors, CPU, Allocs, Callers, Held
	Holds   []byte       // packed holds
	Samples []byte       // packed record.Samples
}

// pack encodes structs of numbers in less space than JSON.
func pack[T any](all []T) []byte {
	b, _ := binary.Append(nil, binary.LittleEndian, all) // T has a fixed size
	return b
}

func unpack[T any](b []byte) []T {
	var one T
	all := make([]T, len(b)/binary.Size(one))
	_, _ = binary.Decode(b, binary.LittleEndian, all)
	return all
}

// ahead is the time from the start signal to the start. The processes collect their garbage during
// this time.
const ahead = 100 * time.Millisecond

// Run starts job.Load.Processes client processes, lets them connect and warm up, starts them
// together, and adds up their results. It calls started when the load begins. It returns after all
// processes have ended. The first error, or the end of ctx, also ends them.
//
// The caller adds the costs of the servers to the Trial.
func Run(ctx context.Context, job Job, started func(time.Time)) (t record.Trial, samples []record.Sample, err error) {
	var children, preparing sync.WaitGroup
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	results := make([]result, job.Load.Processes)
	begin, clock := make(chan int64), newClock()
	preparing.Add(len(results))
	for i := range results {
		job.Process = i
		mine := job
		children.Go(func() {
			ready := sync.OnceFunc(preparing.Done)
			defer ready()
			err := runChild(ctx, mine, &results[i], func() int64 { ready(); return <-begin })
			if err != nil {
				cancel(fmt.Errorf("client process %d of %d: %w", i+1, len(results), err))
			}
		})
	}
	preparing.Wait()
	start := time.Now().Add(ahead)
	go func() {
		for range results {
			select {
			case begin <- clock.nanos(start):
			case <-ctx.Done():
				close(begin) // a child that still waits for the start must stop, too
				return
			}
		}
	}()
	if SleepUntil(ctx, start) {
		started(start)
	}
	children.Wait()
	if ctx.Err() != nil {
		return t, nil, context.Cause(ctx)
	}
	t = record.Trial{Subject: job.Subject, Round: job.Round, Load: job.Load, Errors: map[string]int64{}, Callers: make([]int64, len(results[0].Trial.Callers))}
	var holds []hold
	for _, r := range results {
		add(&t, r.Trial)
		holds, samples = append(holds, unpack[hold](r.Holds)...), append(samples, unpack[record.Sample](r.Samples)...)
	}
	t.Checked = int64(len(holds))
	t.Violations, t.Violation = overlaps(holds, clock.nanos(start))
	return t, samples, nil
}

// runChild runs a client process: it sends the job, calls begin when the process is ready, and
// reads the result.
func runChild(ctx context.Context, job Job, r *result, begin func() int64) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), clientEnv+"=1")
	var said bytes.Buffer
	cmd.Stderr = &said
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	cmd.Cancel, cmd.WaitDelay = func() error { return stdin.Close() }, 2*stopLimit
	if err := errors.Join(inErr, outErr, cmd.Start()); err != nil {
		return err
	}
	in, out := json.NewEncoder(stdin), json.NewDecoder(stdout)
	err = errors.Join(in.Encode(job), out.Decode(r))
	if err == nil && r.Error == "" {
		err = errors.Join(in.Encode(begin()), out.Decode(r))
	}
	stdin.Close()
	_, _ = io.Copy(io.Discard, stdout) // a process that cannot write its output does not end
	ended := cmd.Wait()
	switch {
	case r.Error != "":
		return errors.New(r.Error)
	case err != nil:
		text := strings.TrimSpace(said.String())
		return fmt.Errorf("ended early (%v): %s", ended, text[max(0, len(text)-4000):])
	}
	return nil
}

// add adds the result of one process.
func add(t *record.Trial, of record.Trial) {
	t.Cycles += of.Cycles
	t.Acquire.Merge(of.Acquire)
	t.CPU += of.CPU
	t.Allocs += of.Allocs
	for message, n := range of.Errors {
		t.Errors[message] += n
	}
	for i, n := range of.Callers {
		t.Callers[i] += n
	}
	if h := of.Held; h != nil {
		if t.Held == nil {
			t.Held = &record.HeldLocks{For: h.For}
		}
		t.Held.Wanted += h.Wanted
		t.Held.Acquired += h.Acquired
		t.Held.Lost += h.Lost
		t.Held.Bytes += h.Bytes
		t.Held.CPU += h.CPU
	}
}
