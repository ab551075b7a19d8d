package fleet

import (
	"context"
	"fmt"
	"time"
)

// addrsTimeout bounds the first PING of given servers. They should be up already,
// so there is nothing to wait for but the network and a loading server.
const addrsTimeout = 3 * time.Second

// addrs is a Fleet of servers that somebody else runs, and may need: they
// are asked once whether they are there, and left in peace otherwise.
type addrs struct {
	urls []string
}

func startAddrs(ctx context.Context, urls []string) (Fleet, error) {
	ctx, cancel := context.WithTimeout(ctx, addrsTimeout)
	defer cancel()
	err := parallel(len(urls), func(i int) error {
		if err := awaitReady(ctx, urls[i], nil); err != nil {
			return fmt.Errorf("URL %d: %w", i, err)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("fleet: given servers: %w", err)
	}
	return &addrs{urls: append([]string(nil), urls...)}, nil
}

func (a *addrs) Kind() Kind     { return Addrs }
func (a *addrs) URLs() []string { return append([]string(nil), a.urls...) }
func (a *addrs) Close() error   { return nil }

func (a *addrs) Pause(context.Context, int) error           { return a.cannot("pause") }
func (a *addrs) Resume(context.Context, int) error          { return a.cannot("resume") }
func (a *addrs) Kill(context.Context, int) error            { return a.cannot("kill") }
func (a *addrs) Restart(context.Context, int, Memory) error { return a.cannot("restart") }
func (a *addrs) Disconnect(context.Context, int) error      { return a.cannot("disconnect") }
func (a *addrs) Reconnect(context.Context, int) error       { return a.cannot("reconnect") }

func (a *addrs) cannot(op string) error {
	return unsupported(Addrs, op, "the servers were not started by this fleet")
}
