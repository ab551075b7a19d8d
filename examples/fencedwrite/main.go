// Command fencedwrite lets a holder write after its lock has ended, and the resource refuse it.
//
// Alice has the lock and is paused: by a garbage collection, a hypervisor, a disk. Her lock
// expires, and Bob gets it. Alice wakes up and writes, because she has not looked yet. No lock can
// prevent that; but each lock comes with a higher token, and a resource that remembers the highest
// refuses late writes. Bob announces his token before he does anything else, so Alice is refused
// even if he is paused, too, before his first write.
//
// register.go is what to copy.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/redquorum/redquorum/examples/internal/servers"
	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func main() { servers.Main(story) }

// open returns the Locker of Alice or of Bob, who are processes of their own.
func open(urls []string) (*redlock.Locker, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes,
		redlock.Fenced(),                          // every lock comes with a token
		redlock.TTL(time.Second),                  // short, since we wait for its end
		redlock.NodeTimeout(800*time.Millisecond), // all of this is on one machine, which may be busy
	)
}

func story(ctx context.Context, out io.Writer, urls []string) error {
	var register Register
	e, err := play(ctx, urls, &register, register.Announce)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Alice gets the lock with token %d, and is paused\n", e.alice)
	fmt.Fprintf(out, "her lock has ended: %v\n", e.lost)
	fmt.Fprintf(out, "Bob gets it with token %d, announces that, and is paused before his first write\n", e.bob)
	fmt.Fprintf(out, "Alice wakes up, and writes: %v\n", e.late)
	fmt.Fprintln(out, "Bob wakes up, and writes")
	fmt.Fprintf(out, "the register holds %q\n", register.Read())
	if !errors.Is(e.late, fence.ErrStale) || register.Read() != "from Bob" {
		return errors.New("the late write should have been refused")
	}
	return nil
}

// events are the facts of the story.
type events struct {
	alice, bob int64 // their tokens
	lost       error // why Alice's lock has ended
	late       error // what the register said to Alice's write
}

// play has Alice write between Bob's grant and his first write.
func play(ctx context.Context, urls []string, register *Register, announce func(token int64) error) (e events, err error) {
	alice, err := open(urls)
	if err != nil {
		return e, err
	}
	defer alice.Close()
	bob, err := open(urls)
	if err != nil {
		return e, err
	}
	defer bob.Close()

	// A paused process does not renew either.
	hers, err := alice.Acquire(ctx, "register", redlock.Renew(false))
	if err != nil {
		return e, err
	}
	e.alice = hers.Fence()

	his, err := bob.Acquire(ctx, "register") // waits until hers has expired
	if err != nil {
		return e, err
	}
	defer his.Release(ctx)
	e.bob = his.Fence()
	if err := announce(his.Fence()); err != nil {
		return e, err
	}

	// A look at the lock before the write would find this. But she can be paused between the look
	// and the write as well, so that looking is not enough.
	<-hers.Context().Done()
	e.lost = context.Cause(hers.Context())

	e.late = register.Write(hers.Fence(), "from Alice")
	return e, register.Write(his.Fence(), "from Bob")
}
