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

// shares has each kind of lock as often as it is asked for, beside the others. Permits have a name of
// their own, so they need more callers to be fought for.
var shares = slices.Concat(
	slices.Repeat([]history.Lock{history.Plain, history.Set}, 2),
	slices.Repeat([]history.Lock{history.Fenced, history.FencedPermit}, 3),
	slices.Repeat([]history.Lock{history.Shared, history.Permit}, 4),
)

// most are the numbers of permits that clients believe in. Permits of two numbers exclude each other.
var most = []int{2, 2, 2, 3}

// A demand is what a caller asks for, and how.
type demand struct {
	history.Event      // that it is asked for; Names, of a set, are sorted
	downgrade     bool // the writer becomes a reader before it leaves
	opts          []redlock.Option
}

// draw draws one of the kinds of locks, its names, and options. Locks of all kinds meet on the same
// names. Mostly permits have theirs to themselves; sometimes another lock of the name is held in
// place of one.
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
		all := append([]string{c.Permits}, c.Names...) // a new one: others draw at the same time
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
		d.downgrade = chance.IntN(4) == 0 && c.Over == "" // which has none
	}
	// Half of the leases are fixed: they end in the middle of the work if that takes long.
	d.opts = append(d.opts, redlock.Renew(chance.IntN(2) == 0))
	if chance.IntN(2) == 0 {
		d.opts = append(d.opts, redlock.Owner(fmt.Sprint("client ", c.Who)))
	}
	// Half of the callers do not back off, so that votes are split, and locks taken the moment they are
	// free. A set that waits so may starve, so few do.
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

// A locker is this module's library. It gives locks of every kind, in this process: names of a set,
// permits and readers are not for the lines of a program.
type locker struct{ *redlock.Locker }

func (from locker) acquire(ctx context.Context, d demand) (lock, error) {
	if d.Lock == history.Set {
		return from.AcquireAll(ctx, d.Names, d.opts...)
	}
	return from.Acquire(ctx, d.Name, d.opts...)
}

// Asked are the names that a client of the config asks for.
func (c Config) Asked() []string {
	switch {
	case c.Other != "":
		return slices.Clone(c.Names)
	case !slices.ContainsFunc(c.Locks, func(l history.Lock) bool { return !l.IsPermit() }):
		return []string{c.Permits}
	}
	return append(slices.Clone(c.Names), c.Permits)
}
