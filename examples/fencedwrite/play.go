package main

import (
	"context"

	"github.com/redquorum/redquorum/redlock"
)

// events is what happened.
type events struct {
	alice, bob int64 // their tokens
	lost       error // why Alice's lock has ended
	late       error // what the register said to Alice's write
}

func play(ctx context.Context, urls []string, register *Register) (e events, err error) {
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

	// Who is paused does not renew either.
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
	if err := register.Write(his.Fence(), "from Bob"); err != nil {
		return e, err
	}

	// Had she looked before she wrote, it would have been here. She can be paused
	// between the look and the write as well, so that looking is not enough.
	<-hers.Context().Done()
	e.lost = context.Cause(hers.Context())

	e.late = register.Write(hers.Fence(), "from Alice")
	return e, nil
}
