package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlocktest"
)

// An auditList is an Audit in memory.
type auditList struct {
	mu  sync.Mutex
	all []AuditEntry
}

func (l *auditList) Record(e AuditEntry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

func (l *auditList) Failed() int64 { return 7 }

// take returns the entries since the last call, which have a time and no secret.
func (l *auditList) take(t *testing.T, secrets ...string) []AuditEntry {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	all := l.all
	l.all = nil
	text, err := json.Marshal(all)
	require.NoError(t, err)
	for _, secret := range secrets {
		assert.NotContains(t, string(text), secret)
	}
	for i := range all {
		assert.WithinDuration(t, time.Now(), all[i].Time, time.Minute)
		all[i].Time = time.Time{}
	}
	return all
}

// TestAuditHasEachGrantRefusalAndEnd: it has each of these events of a lock once.
func TestAuditHasEachGrantRefusalAndEnd(t *testing.T) {
	audit := &auditList{}
	f := twoClients(t)
	f.change(1, func(c *rights.Client) { c.Operator = true })
	served(t, Config{Rights: f, Audit: audit}, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		c := as(t, s, "billing")
		c.session = c.ask("POST", "/v1/sessions", `{"owner":"web-3","ttl_ms":600000}`).session.Session
		entry := func(event, lease, name, reason string, fence int64) AuditEntry {
			return AuditEntry{
				Event: event, Client: "billing", Names: []string{name}, Kind: "exclusive", Owner: "web-3",
				Session: api.PublicID(c.session), Lease: api.PublicID(lease), Fence: fence, Reason: reason,
			}
		}
		a := c.take(`{"name":"billing/a","fenced":true}`).lease
		assert.Equal(t, []AuditEntry{entry(AuditGranted, a.Lease, "billing/a", "", a.Fence)}, audit.take(t, c.session, a.Lease))

		refused := AuditEntry{Event: AuditRefused, Client: "billing", Names: []string{"billing/a"}, Kind: "exclusive", Owner: "web-3", Reason: api.KindHeld}
		assert.Equal(t, http.StatusLocked, c.ask("POST", "/v1/locks", `{"name":"billing/a"}`).status)
		c.ask("POST", "/v1/locks", `{"name":"billing/a","weight":7}`) // malformed
		c.ask("GET", "/v1/locks?name=payroll", "")
		assert.Equal(t, []AuditEntry{refused, {Event: AuditRefused, Client: "billing", Names: []string{"payroll"}, Reason: api.KindForbidden}}, audit.take(t, c.session, a.Lease))

		c.release(a.Lease)
		assert.Equal(t, []AuditEntry{entry(AuditReleased, a.Lease, "billing/a", "", a.Fence)}, audit.take(t))

		a = c.take(`{"name":"billing/a","max_hold_ms":5000}`).lease
		audit.take(t)
		time.Sleep(6 * time.Second)
		lost := audit.take(t)
		require.Len(t, lost, 1)
		assert.NotEmpty(t, lost[0].Reason)
		assert.Equal(t, entry(AuditLost, a.Lease, "billing/a", lost[0].Reason, 0), lost[0])
		assert.Equal(t, http.StatusGone, c.ask("DELETE", "/v1/locks/"+a.Lease, "").status)
		assert.Empty(t, audit.take(t), "the loss was its end")

		a = c.take(`{"name":"billing/a"}`).lease
		audit.take(t)
		c.ask("DELETE", "/v1/session", "")
		assert.Equal(t, []AuditEntry{entry(AuditReleased, a.Lease, "billing/a", "its session has ended", 0)}, audit.take(t))

		c.session = c.ask("POST", "/v1/sessions", `{"owner":"web-3","ttl_ms":600000}`).session.Session
		operator := as(t, s, "payroll")
		operator.session = api.PublicID(c.session)
		a = c.take(`{"name":"billing/a"}`).lease
		audit.take(t)
		operator.ask("DELETE", "/v1/session", "")
		time.Sleep(10 * time.Second)
		assert.Equal(t, []AuditEntry{entry(AuditReleased, a.Lease, "billing/a", `the operator "payroll" has ended its session`, 0)}, audit.take(t))

		c.session = c.ask("POST", "/v1/sessions", `{"owner":"web-3","ttl_ms":600000}`).session.Session
		a = c.take(`{"name":"billing/a"}`).lease
		audit.take(t)
		assert.Contains(t, c.ask("GET", "/metrics", "").body, "\nredlock_serve_audit_failed_total 7\n")
		endNow(s)
		assert.Equal(t, []AuditEntry{entry(AuditLeft, a.Lease, "billing/a", "the server has ended", 0)}, audit.take(t))
	})
}

// TestLockThatEndedBeforeItsReleaseIsLost: the process was stopped, and its session ends first.
func TestLockThatEndedBeforeItsReleaseIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		audit, process := &auditList{}, sim.New(1, 3).NewClient(1)
		s := New(sim.Locker(t, process), Config{TTL: 10 * time.Second, Audit: audit})
		c := open(t, s, `{"ttl_ms":12000}`)
		c.take(`{"name":"a"}`)
		process.Pause()
		time.Sleep(13 * time.Second)
		process.Resume()
		all := audit.take(t)
		require.Len(t, all, 2)
		assert.Equal(t, AuditLost, all[1].Event)
		assert.EqualValues(t, 1, s.table.usedBy("").lost)
		endNow(s)
	})
}

// TestAuditHasTheLocksThatARestartEnds, once: locks of several names, locks without room, and locks
// of a session that an operator has ended.
func TestAuditHasTheLocksThatARestartEnds(t *testing.T) {
	audit := &auditList{}
	f := twoClients(t)
	f.change(1, func(c *rights.Client) { c.Operator = true })
	of := Config{TTL: 10 * time.Second, Rights: f, Audit: audit}
	served(t, of, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		restart := func(c Config, kept, lost int) []AuditEntry {
			t.Helper()
			audit.take(t)
			s = resumed(t, servers, c, s.Leave(), kept, lost)
			return audit.take(t)
		}
		billing, operator := as(t, s, "billing"), as(t, s, "payroll")
		session := func() {
			billing.server, billing.session = s, ""
			billing.session = billing.ask("POST", "/v1/sessions", `{"ttl_ms":600000}`).session.Session
		}
		session()
		billing.take(`{"name":"billing/a"}`)
		set := billing.take(`{"names":["billing/x","billing/y"]}`).lease
		all := restart(of, 1, 1)
		require.Len(t, all, 1)
		assert.Equal(t, []string{AuditLost, api.PublicID(set.Lease), notCarried}, []string{all[0].Event, all[0].Lease, all[0].Reason})
		assert.EqualValues(t, 1, s.table.usedBy("billing").lost)
		assert.Empty(t, restart(of, 1, 1), "it was lost before")

		billing.server = s
		require.Equal(t, http.StatusGone, billing.ask("DELETE", "/v1/locks/"+set.Lease, "").status)
		for _, limits := range []Limits{{Sessions: 1}, {Total: 1}} {
			session()
			billing.take(fmt.Sprintf(`{"name":"billing/%v"}`, limits))
			small := of
			small.Limits = limits
			all = restart(small, 1, 1)
			require.Len(t, all, 1)
			assert.Equal(t, []string{AuditLost, noRoom}, []string{all[0].Event, all[0].Reason})
			assert.Empty(t, restart(of, 1, 0))
		}

		for _, holder := range s.table.all() {
			if len(holder.leases) > 0 {
				operator.session = api.PublicID(holder.id)
			}
		}
		operator.server = s
		require.Equal(t, http.StatusAccepted, operator.ask("DELETE", "/v1/session", "").status)
		all = restart(of, 0, 0)
		require.Len(t, all, 1)
		assert.Equal(t, AuditLeft, all[0].Event)
	})
}

// TestLossAfterTheStateIsAuditedOnce: the next server finds the loss, or this one if it stays.
func TestLossAfterTheStateIsAuditedOnce(t *testing.T) {
	for _, stays := range []bool{false, true} {
		t.Run(fmt.Sprint(stays), func(t *testing.T) {
			audit := &auditList{}
			of := Config{Audit: audit}
			served(t, of, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
				open(t, s, `{"ttl_ms":60000}`).take(`{"name":"a","max_hold_ms":1000}`)
				audit.take(t)
				left := s.Leave()
				time.Sleep(2 * time.Second) // like a slow disk
				assert.Empty(t, audit.take(t))
				if stays {
					s.Stay()
				} else {
					resumed(t, servers, of, left, 0, 1)
				}
				all := audit.take(t)
				require.Len(t, all, 1)
				assert.Equal(t, AuditLost, all[0].Event)
			})
		})
	}
}

// TestServerThatStaysAuditsEachEndOnce: the state could not be written, so no other server audits the
// end of a lock whose session an operator has ended, or of a lock that was not adopted.
func TestServerThatStaysAuditsEachEndOnce(t *testing.T) {
	audit := &auditList{}
	f := twoClients(t)
	f.change(1, func(c *rights.Client) { c.Operator = true })
	of := Config{Rights: f, Audit: audit}
	served(t, of, func(t *testing.T, servers *redlocktest.Servers, s *Server) {
		billing, operator := as(t, s, "billing"), as(t, s, "payroll")
		end := func(s *Server) []AuditEntry {
			s.Stay()
			endNow(s)
			return audit.take(t)
		}
		session := func() string { return billing.ask("POST", "/v1/sessions", "").session.Session }
		billing.session = session()
		billing.take(`{"name":"billing/a"}`)
		operator.session = api.PublicID(billing.session)
		require.Equal(t, http.StatusAccepted, operator.ask("DELETE", "/v1/session", "").status)
		billing.session = ""
		billing.session = session()
		b := billing.take(`{"name":"billing/b"}`).lease
		audit.take(t)
		left := s.Leave()
		all := end(s)
		require.Len(t, all, 2)
		assert.Equal(t, []string{AuditLeft, AuditLeft}, []string{all[0].Event, all[1].Event})

		servers.Outage(2)
		next := New(servers.Locker(), of)
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		next.Resume(ctx, left)
		next.Leave()
		all = end(next)
		require.Len(t, all, 1)
		assert.Equal(t, []string{AuditLeft, api.PublicID(b.Lease)}, []string{all[0].Event, all[0].Lease})
	})
}

// TestRefusals: only decisions about a known client are refusals. Otherwise a stranger could fill
// the disk.
func TestRefusals(t *testing.T) {
	t.Parallel()
	known, lock := &rights.Client{}, api.LockRequest{Kind: "exclusive"}
	for _, c := range []struct {
		client      *rights.Client
		lockRequest api.LockRequest
		kind        string
		is          bool
	}{
		{nil, lock, api.KindForbidden, false},
		{known, lock, api.KindHeld, true},
		{known, lock, api.KindNoQuorum, true},
		{known, lock, api.KindBad, false},
		{known, api.LockRequest{}, api.KindForbidden, true},
		{known, api.LockRequest{}, api.KindLimit, true},
		{known, api.LockRequest{}, api.KindSession, false},
		{known, api.LockRequest{}, api.KindLost, false},
	} {
		assert.Equal(t, c.is, isRefusal(&request{client: c.client, lockRequest: c.lockRequest}, &api.Problem{Kind: c.kind}), "%v", c)
	}
}
