package pool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/link"
)

// reauthenticating is Reauthenticate without its lower limit.
func reauthenticating(every time.Duration) Option {
	return option(false, "", func(s *settings) { s.Reauthenticate = every })
}

// passwords returns "secret1", "secret2" and so on, a new one for each call.
func passwords(asked *atomic.Int64) Option {
	return Credentials(func(context.Context, string) (user, password string, err error) {
		return "app", fmt.Sprint("secret", asked.Add(1)), nil
	})
}

// TestAuthTravelsAmongTheRequests: no request gets the answer to AUTH, and there is only one
// connection.
func TestAuthTravelsAmongTheRequests(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lenient = true
	var asked atomic.Int64
	n := r.open(passwords(&asked), reauthenticating(time.Millisecond))
	for i := 0; len(r.commands("AUTH")) < 10; i++ {
		key := fmt.Sprint("k", i)
		granted, refused := submit(t, n, acquire(key, "a")), submit(t, n, acquire(key, "b"))
		released := submit(t, n, release(key, "a"))
		require.Equal(t, protocol.Granted, granted.next(t).Outcome)
		require.Equal(t, protocol.Refused, refused.next(t).Outcome)
		require.Equal(t, protocol.Granted, released.next(t).Outcome)
	}
	assert.Equal(t, 1, r.connections())
	last := 0
	for _, line := range r.commands("AUTH") {
		var id, password int
		_, err := fmt.Sscanf(line, "%d AUTH app secret%d", &id, &password)
		require.NoError(t, err, line)
		assert.Greater(t, password, last, "each has asked anew")
		last = password
	}
}

// TestRefusedAuthChangesNothing: the connection continues, and AUTH is tried again. The same
// applies if the credentials function fails.
func TestRefusedAuthChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lenient = true
	var logged logBuffer
	var sealed atomic.Bool
	n := r.open(logged.log(), reauthenticating(time.Millisecond), Credentials(func(context.Context, string) (string, string, error) {
		if sealed.Load() {
			return "", "", errors.New("the vault is sealed")
		}
		return "app", "secret", nil
	}))
	says := func(what string) {
		t.Helper()
		eventually(t, func() bool { return logged.count(n, " again: "+what) == 1 }, what)
		answers(t, n)
	}
	answers(t, n)
	r.fail("AUTH", "WRONGPASS invalid username-password pair: secret")
	says("WRONGPASS")
	r.fail("AUTH", "")
	sealed.Store(true)
	says("credentials: the vault is sealed")
	sealed.Store(false)
	from := len(r.commands("AUTH"))
	eventually(t, func() bool { return len(r.commands("AUTH")) > from }, "it is tried again")
	answers(t, n)
	assert.Equal(t, 1, r.connections())
	assert.Zero(t, logged.count(n, "secret"))
}

// TestListenerIsReplacedBeforeItsCredentialsExpire: each listener asks for its own credentials, and
// watchers look again.
func TestListenerIsReplacedBeforeItsCredentialsExpire(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.lenient = true
	r.tracks = true
	var asked atomic.Int64
	n := r.open(passwords(&asked), reauthenticating(50*time.Millisecond))
	w := wait(t, n, "k")
	for range 3 {
		w.next() // sent once the listener is registered on the server
	}
	listeners := map[string]bool{}
	for _, line := range r.commands("SUBSCRIBE") {
		id, _, _ := strings.Cut(line, " ")
		listeners[id] = true
	}
	assert.GreaterOrEqual(t, len(listeners), 3)
	others := slices.DeleteFunc(r.commands("CLIENT SETNAME redlock"), func(line string) bool { return strings.HasSuffix(line, "-hints") })
	assert.Len(t, others, 1, "one connection for requests")
}

func TestReauthenticateCallsTheFunctionOfCredentials(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	_, err := OpenWith([]string{"redis://a"}, Reauthenticate(time.Minute))
	assert.ErrorContains(t, err, "needs the option Credentials")
	_, err = OpenWith([]string{"redis://a"}, passwords(&asked), Reauthenticate(60))
	assert.ErrorContains(t, err, "Reauthenticate(60ns): must be at least 1s")

	for name, c := range map[string]struct {
		user string
		opts []Option
	}{
		"once without the option": {"", nil},
		"never for a URL's own":   {"app:secret@", []Option{Reauthenticate(time.Second)}},
	} {
		r := newRig(t)
		r.lenient = true
		target, err := parseURL("redis://" + c.user + r.Addr())
		require.NoError(t, err)
		s, err := settle(append(c.opts, passwords(&asked)))
		require.NoError(t, err)
		conn, err := target.dialer(s)(t.Context())
		require.NoError(t, err)
		assert.Nil(t, conn.(*link.Conn).Auth, name)
		conn.Close()
	}
}
