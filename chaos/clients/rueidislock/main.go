// Command rueidislock shows github.com/redis/rueidis/rueidislock to chaos, on the first server: it
// locks by keys of one Redis, or one cluster. It renews by itself, and a context tells the loss. With
// -best it has the settings that its README has for one server: one key, and NOLOOP.
package main

import (
	"context"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/redquorum/redquorum/chaos/clients/line"
)

func main() { line.Main("rueidislock", "github.com/redis/rueidis", open) }

// open leaves the connection to the first acquire: the server may be away.
func open(s line.Servers, best bool) (line.Library, error) {
	option := rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: s.Addrs[:1], ForceSingleClient: true},
		KeyValidity:  s.TTL,
	}
	if best {
		option.KeyMajority, option.NoLoopTracking = 1, true
	}
	var locker rueidislock.Locker
	return line.Library{
		Acquire: func(ctx context.Context, name string) (_ line.Lock, err error) {
			if locker == nil {
				if locker, err = rueidislock.NewLocker(option); err != nil {
					locker = nil
					return line.Lock{}, err
				}
			}
			// The lock would end with ctx.
			whole, giveUp := context.WithCancel(context.WithoutCancel(ctx))
			waiting := context.AfterFunc(ctx, giveUp)
			held, release, err := locker.WithContext(whole, name)
			if err != nil || !waiting() {
				if err == nil {
					release()
					err = ctx.Err()
				}
				giveUp()
				return line.Lock{}, err
			}
			return line.Lock{
				Left: func(context.Context) (time.Duration, error) { return line.Forever, held.Err() },
				Release: func(context.Context) error {
					release()
					giveUp()
					return nil
				},
			}, nil
		},
		Close: func() {
			if locker != nil {
				locker.Close()
			}
		},
	}, nil
}
