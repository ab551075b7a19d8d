//go:build unix

package subject

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/redquorum/redquorum/bench/internal/backend"
	"github.com/redquorum/redquorum/bench/internal/record"
)

func etcds() []Spec {
	const note = "concurrency.Mutex, with a session for each caller: mutexes of one session share a key. " +
		"One client a process, which spreads its requests over all members. Leases are whole seconds. "
	return []Spec{
		ofEtcd("etcd", "etcd", backend.Etcd, note+"Members sync each write to disk, as by default."),
		ofEtcd("etcd-nosync", "etcd, no fsync", backend.EtcdNoSync, note+"--unsafe-no-fsync: members write, and do not wait for the disk."),
	}
}

func ofEtcd(name, title string, servers backend.Kind, note string) Spec {
	return Spec{
		Subject: record.Subject{Name: name, Title: title + " (" + titled("client", "go.etcd.io/etcd/client/v3") + ")", Note: note},
		Servers: servers, Renews: true,
		Open: openEtcd,
	}
}

func openEtcd(ctx context.Context, urls []string, cfg Config) (Client, error) {
	members, err := addresses(urls, "etcd")
	if err != nil {
		return nil, err
	}
	client, err := clientv3.New(clientv3.Config{Endpoints: members, DialTimeout: cfg.TTL, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	ttl := int64((cfg.TTL + time.Second - 1) / time.Second)
	sessions, err := newSessions(ctx, cfg.Callers, func(ctx context.Context) (*etcdSession, error) {
		lease, err := client.Grant(ctx, ttl) // by NewSession it would not end with ctx
		if err != nil {
			return nil, err
		}
		s, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID), concurrency.WithTTL(int(ttl)))
		return &etcdSession{s}, err
	})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return &etcdClient{client, sessions}, nil
}

type etcdSession struct{ session *concurrency.Session }

func (s *etcdSession) lost() <-chan struct{} { return s.session.Done() }
func (s *etcdSession) end()                  { _ = s.session.Close() } // or else the lease expires

type etcdClient struct {
	client   *clientv3.Client
	sessions *sessions[*etcdSession]
}

func (c *etcdClient) Acquire(ctx context.Context, name string) (Lock, error) {
	s, err := c.sessions.take(ctx)
	if err != nil {
		return nil, failed(ctx, err, etcdOutcome(err))
	}
	m := concurrency.NewMutex(s.session, name)
	if err := m.Lock(ctx); err != nil {
		c.sessions.drop(s)
		return nil, failed(ctx, err, etcdOutcome(err))
	}
	return &etcdLock{c.sessions, s, m}, nil
}

func (c *etcdClient) Close() error {
	c.sessions.close()
	return c.client.Close()
}

type etcdLock struct {
	sessions *sessions[*etcdSession]
	session  *etcdSession
	mutex    *concurrency.Mutex
}

func (l *etcdLock) Release(ctx context.Context) error {
	return l.sessions.released(ctx, l.session, l.mutex.Unlock(ctx), etcdOutcome)
}

func (l *etcdLock) Until() time.Time      { return untilEnded(l.session) }
func (l *etcdLock) Lost() <-chan struct{} { return l.session.lost() }

// etcdOutcome tells whether too few members answered. Unavailable is the code of all errors that
// say so, those of gRPC and those of a member during an election.
func etcdOutcome(err error) string {
	var members interface{ Code() codes.Code }
	if status.Code(err) == codes.Unavailable || errors.As(err, &members) && members.Code() == codes.Unavailable {
		return record.NoQuorum
	}
	return ""
}
