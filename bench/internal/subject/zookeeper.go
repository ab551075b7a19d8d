//go:build unix

package subject

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/redquorum/redquorum/bench/internal/backend"
	"github.com/redquorum/redquorum/bench/internal/record"
)

func zooKeepers() []Spec {
	const note = "zk.Lock, with a session for each caller: a Lock that fails leaves its node behind, which only the session's end removes. " +
		"It knows no contexts: a caller that stops waiting ends its session. "
	return []Spec{
		ofZooKeeper("zookeeper", "ZooKeeper", backend.ZooKeeper, note+"Members sync each write to disk, as by default."),
		ofZooKeeper("zookeeper-nosync", "ZooKeeper, no fsync", backend.ZooKeeperNoSync, note+"forceSync=no: members write, and do not wait for the disk."),
	}
}

func ofZooKeeper(name, title string, servers backend.Kind, note string) Spec {
	return Spec{
		Subject: record.Subject{Name: name, Title: title + " (" + titled("client", "github.com/go-zookeeper/zk") + ")", Note: note},
		Servers: servers, Renews: true,
		Open: openZooKeeper,
	}
}

func openZooKeeper(ctx context.Context, urls []string, cfg Config) (Client, error) {
	members, err := addresses(urls, "zookeeper")
	if err != nil {
		return nil, err
	}
	sessions := &sessions[*zkSession]{lock: lockZooKeeper, outcome: zkOutcome}
	sessions.open = func(ctx context.Context) (*zkSession, error) { return dialZooKeeper(ctx, members, cfg.TTL) }
	return sessions.start(ctx, cfg.Callers)
}

// lockZooKeeper ends the session with ctx. What unlocks waits for the server's answer or the loss of
// the connection: the library takes no context.
func lockZooKeeper(ctx context.Context, s *zkSession, name string) (unlock func(context.Context) error, err error) {
	l := zk.NewLock(s.conn, "/"+name, zk.WorldACL(zk.PermAll))
	waiting := context.AfterFunc(ctx, s.conn.Close)
	err = l.Lock()
	if !waiting() {
		err = errors.Join(ctx.Err(), err)
	}
	return func(context.Context) error { return l.Unlock() }, err
}

type zkSession struct {
	conn    *zk.Conn
	expired chan struct{}
	done    chan struct{} // closed when conn has ended
}

// dialZooKeeper returns when the session is there.
func dialZooKeeper(ctx context.Context, members []string, timeout time.Duration) (*zkSession, error) {
	conn, events, err := zk.Connect(members, timeout, zk.WithLogger(silent{}), zk.WithLogInfo(false))
	if err != nil {
		return nil, err
	}
	s := &zkSession{conn: conn, expired: make(chan struct{}), done: make(chan struct{})}
	there := make(chan struct{})
	go s.follow(events, there)
	select {
	case <-there:
		return s, nil
	case <-ctx.Done():
		s.end()
		return nil, context.Cause(ctx)
	}
}

// follow closes there with the first session, and expired when it has expired. The library would
// go on with another one.
func (s *zkSession) follow(events <-chan zk.Event, there chan struct{}) {
	defer close(s.done)
	begun, ended := false, false
	for e := range events {
		switch {
		case e.State == zk.StateHasSession && !begun:
			begun = true
			close(there)
		case e.State == zk.StateExpired && !ended:
			ended = true
			close(s.expired)
		}
	}
}

func (s *zkSession) lost() <-chan struct{} { return s.expired }

func (s *zkSession) end() {
	s.conn.Close()
	<-s.done
}

// silent keeps the library from logging each connection that fails, which the errors say as well.
type silent struct{}

func (silent) Printf(string, ...any) {}

// zkOutcome tells whether the client had no member that serves. One without a quorum closes its
// connections.
func zkOutcome(err error) string {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "" // the caller's, which ended the session
	case errors.Is(err, zk.ErrConnectionClosed), errors.Is(err, zk.ErrNoServer):
		return record.NoQuorum
	case errors.Is(err, zk.ErrSessionExpired), errors.Is(err, zk.ErrNoNode):
		return record.Lost
	}
	return ""
}
