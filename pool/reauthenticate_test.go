package pool

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool/internal/link"
)

// reauthenticating is Reauthenticate without its lower bound.
func reauthenticating(every time.Duration) Option {
	return func(s *settings) error {
		s.Reauthenticate = every
		return nil
	}
}

// passwords are "secret1", "secret2" and so on, each asked for once.
func passwords(asked *atomic.Int64) Option {
	return Credentials(func(context.Context, string) (user, password string, err error) {
		return "app", fmt.Sprint("secret", asked.Add(1)), nil
	})
}

// newLenient returns a rig that takes any password.
func newLenient(t *testing.T) *rig {
	r := newRig(t)
	r.lenient = true
	return r
}

// TestAuthTravelsAmongTheRequests: no request has the answer of AUTH, and there is one connection.
func TestAuthTravelsAmongTheRequests(t *testing.T) {
	t.Parallel()
	r := newLenient(t)
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

// TestARefusedAuthChangesNothing: the connection goes on, and is tried again.
func TestARefusedAuthChangesNothing(t *testing.T) {
	t.Parallel()
	r := newLenient(t)
	var logged logBuffer
	var asked atomic.Int64
	n := r.open(logged.log(), passwords(&asked), reauthenticating(time.Millisecond))
	answers(t, n)
	r.fail("AUTH", "WRONGPASS invalid username-password pair: secret")
	eventually(t, func() bool { return logged.count(n, "it cannot be authenticated again: WRONGPASS") > 0 }, "it is told")
	answers(t, n)
	r.fail("AUTH", "")
	from := len(r.commands("AUTH"))
	eventually(t, func() bool { return len(r.commands("AUTH")) > from }, "it is tried again")
	answers(t, n)
	assert.Equal(t, 1, r.connections())
	assert.Zero(t, logged.count(n, "secret"))
}

// TestWithoutCredentialsTheConnectionGoesOn, until the function has some again.
func TestWithoutCredentialsTheConnectionGoesOn(t *testing.T) {
	t.Parallel()
	r := newLenient(t)
	var logged logBuffer
	var asked atomic.Int64
	n := r.open(logged.log(), reauthenticating(time.Millisecond), Credentials(func(context.Context, string) (string, string, error) {
		if k := asked.Add(1); 1 < k && k < 10 {
			return "", "", errors.New("the vault is sealed")
		}
		return "app", "secret", nil
	}))
	eventually(t, func() bool { return len(r.commands("AUTH")) > 1 }, "it has some again")
	answers(t, n)
	assert.GreaterOrEqual(t, asked.Load(), int64(10))
	assert.Equal(t, 1, r.connections())
	assert.Equal(t, 1, logged.count(n, "the vault is sealed"))
}

// TestAListenerIsReplacedBeforeItsCredentialsEnd: each has asked for its own, and who watches looks again.
func TestAListenerIsReplacedBeforeItsCredentialsEnd(t *testing.T) {
	t.Parallel()
	r := newLenient(t)
	r.tracks = true
	var asked atomic.Int64
	n := r.open(passwords(&asked), reauthenticating(50*time.Millisecond))
	w := wait(t, n, "k")
	for range 3 {
		w.next() // is given once the listener is named to the server
	}
	listeners := map[string]bool{}
	for _, line := range r.commands("SUBSCRIBE") {
		id, _, _ := strings.Cut(line, " ")
		listeners[id] = true
	}
	assert.GreaterOrEqual(t, len(listeners), 3)
	assert.Len(t, r.commands("CLIENT SETNAME redlock-hints"), r.connections()-1, "all but the listeners are one")
}

func TestReauthenticateAsksTheFunctionOfCredentials(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	_, err := OpenWith([]string{"redis://a"}, Reauthenticate(time.Minute))
	assert.ErrorContains(t, err, "there is none")
	_, err = OpenWith([]string{"redis://a"}, passwords(&asked), Reauthenticate(60))
	assert.ErrorContains(t, err, "Reauthenticate(60ns): must be at least 1s")

	for name, c := range map[string]struct {
		user string
		opts []Option
	}{
		"once without the option": {"", nil},
		"never for a URL's own":   {"app:secret@", []Option{Reauthenticate(time.Second)}},
	} {
		target, err := parseURL("redis://" + c.user + newLenient(t).Addr())
		require.NoError(t, err)
		s, err := settle(append(c.opts, passwords(&asked)))
		require.NoError(t, err)
		conn, err := target.dialer(s)(t.Context())
		require.NoError(t, err)
		assert.Nil(t, conn.(*link.Conn).Auth, name)
		conn.Close()
	}
}
