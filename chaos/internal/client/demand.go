package client

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/redlock"
)

// shares lists each kind of lock in proportion to its requests. Permits have a name of their own, so
// they need more callers for contention.
var shares = slices.Concat(
	slices.Repeat([]history.Lock{history.Plain, history.Set}, 2),
	slices.Repeat([]history.Lock{history.Fenced, history.FencedPermit}, 3),
	slices.Repeat([]history.Lock{history.Shared, history.Permit}, 4),
)

// most are the numbers of permits that clients use. Permits of different numbers exclude each other.
var most = []int{2, 2, 2, 3}

// A demand is a request of a caller, with its options.
type demand struct {
	history.Event      // the Asked event; the Names of a set are sorted
	downgrade     bool // the writer becomes a reader before it leaves
	opts          []redlock.Option
}

// draw draws a kind of lock, its names, and options. Locks of all kinds compete for the same names.
// Usually permits have a name of their own; sometimes another lock of that name replaces a permit.
func (c Config) draw(chance *rand.Rand) demand {
	if c.Other != "" {
		return demand{Event: history.Event{Lock: c.Locks[0], Name: c.Names[chance.IntN(len(c.Names))]}}
	}
	of := slices.DeleteFunc(slices.Clone(shares), func(l history.Lock) bool { return !slices.Contains(c.Locks, l) })
	d := demand{Event: history.Event{Lock: of[chance.IntN(len(of))]}}
	switch {
	case d.Lock.IsPermit():
		d.Name, d.Most = c.Permits, most[chance.IntN(len(most))]
		d.opts = append(d.opts, redlock.Permits(d.Most))
	case d.Lock == history.Set:
		all := append([]string{c.Permits}, c.Names...) // a new slice, because other callers draw at the same time
		for _, i := range chance.Perm(len(all))[:2+chance.IntN(2)] {
			d.Names = append(d.Names, all[i])
		}
		slices.Sort(d.Names)
		d.Name = strings.Join(d.Names, "+")
	case chance.IntN(8) == 0:
		d.Name = c.Permits
	default:
		d.Name = c.Names[chance.IntN(len(c.Names))]
	}
	if d.Lock.HasToken() {
		d.opts = append(d.opts, redlock.Fenced())
	}
	if d.Lock == history.Shared {
		d.opts = append(d.opts, redlock.Shared())
	}
	if d.Lock == history.Plain || d.Lock == history.Fenced {
		d.downgrade = chance.IntN(4) == 0 && c.Over == "" // HTTP has no downgrade
	}
	// Half of the locks are not renewed, so they end during the work if it takes long.
	d.opts = append(d.opts, redlock.Renew(chance.IntN(2) == 0))
	if chance.IntN(2) == 0 {
		d.opts = append(d.opts, redlock.Owner(fmt.Sprint("client ", c.Who)))
	}
	// Half of the callers do not back off, so that votes are split, and locks are taken as soon as
	// they are free. Few sets do that, because a set without backoff may starve.
	restless := 4
	if d.Lock == history.Set {
		restless = 1
	}
	switch n := chance.IntN(8); {
	case n < restless:
		d.opts = append(d.opts, redlock.RetryInterval(15*time.Millisecond))
	case n > 5 && !d.Lock.IsPermit() && d.Lock != history.Shared:
		d.Fair = true
		d.opts = append(d.opts, redlock.Fair())
	}
	return d
}

// A locker is this module's library. It gives locks of every kind in this process. The protocol of
// programs has no sets, permits or readers.
type locker struct{ *redlock.Locker }

func (from locker) acquire(ctx context.Context, d demand) (lock, error) {
	if d.Lock == history.Set {
		return from.AcquireAll(ctx, d.Names, d.opts...)
	}
	return from.Acquire(ctx, d.Name, d.opts...)
}

// Asked returns the names that a client with the config requests.
func (c Config) Asked() []string {
	switch {
	case c.Other != "":
		return slices.Clone(c.Names)
	case !slices.ContainsFunc(c.Locks, func(l history.Lock) bool { return !l.IsPermit() }):
		return []string{c.Permits}
	}
	return append(slices.Clone(c.Names), c.Permits)
}
