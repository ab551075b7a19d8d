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
	sessions := &sessions[*etcdSession]{outcome: etcdOutcome, stop: client.Close}
	sessions.open = func(ctx context.Context) (*etcdSession, error) {
		lease, err := client.Grant(ctx, ttl) // by NewSession it would not end with ctx
		if err != nil {
			return nil, err
		}
		s, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID), concurrency.WithTTL(int(ttl)))
		return &etcdSession{s}, err
	}
	sessions.lock = func(ctx context.Context, s *etcdSession, name string) (func(context.Context) error, error) {
		m := concurrency.NewMutex(s.session, name)
		return m.Unlock, m.Lock(ctx)
	}
	return sessions.start(ctx, cfg.Callers)
}

type etcdSession struct{ session *concurrency.Session }

func (s *etcdSession) lost() <-chan struct{} { return s.session.Done() }
func (s *etcdSession) end()                  { _ = s.session.Close() } // or else the lease expires

// etcdOutcome tells whether too few members answered. Unavailable is the code of all errors that
// say so, those of gRPC and those of a member during an election.
func etcdOutcome(err error) string {
	var members interface{ Code() codes.Code }
	if status.Code(err) == codes.Unavailable || errors.As(err, &members) && members.Code() == codes.Unavailable {
		return record.NoQuorum
	}
	return ""
}
