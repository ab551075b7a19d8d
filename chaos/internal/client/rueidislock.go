package client

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// openRueidislock opens github.com/redis/rueidis/rueidislock, on the first server: it locks keys of
// one Redis server or one cluster. It renews by itself, and a context ends with the lock. The best
// settings are the ones of its README for one server: one key, and NOLOOP. The first acquire makes
// the connection, because the server may be down.
func openRueidislock(c Config, best bool) (library, error) {
	option := rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: c.addrs()[:1], ForceSingleClient: true},
		KeyValidity:  c.TTL,
	}
	if best {
		option.KeyMajority, option.NoLoopTracking = 1, true
	}
	var locker rueidislock.Locker
	l := library{about: version("github.com/redis/rueidis")}
	l.take = func(ctx context.Context, name string) (_ *theirs, err error) {
		if locker == nil {
			if locker, err = rueidislock.NewLocker(option); err != nil {
				locker = nil
				return nil, err
			}
		}
		// Without WithoutCancel the lock would end with ctx.
		whole, giveUp := context.WithCancel(context.WithoutCancel(ctx))
		waiting := context.AfterFunc(ctx, giveUp)
		held, release, err := locker.WithContext(whole, name)
		if err != nil || !waiting() {
			if err == nil {
				release()
				err = ctx.Err()
			}
			giveUp()
			return nil, err
		}
		return &theirs{
			left:    func(context.Context) (time.Duration, error) { return thisMoment, held.Err() },
			release: func(context.Context) error { release(); giveUp(); return nil },
		}, nil
	}
	l.close = func() error {
		if locker != nil {
			locker.Close()
		}
		return nil
	}
	return l, nil
}
