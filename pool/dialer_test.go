package pool

import (
	"net"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestADialerConnectsAsOpenDoes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.RequireAuth("hunter2")
	require.NoError(t, r.DB(3).Set("k", "here"))
	name, dial, err := Dialer("redis://:hunter2@" + r.Addr() + "/3")
	require.NoError(t, err)
	assert.Equal(t, r.Addr()+"/3", name)
	c, err := dial(t.Context())
	require.NoError(t, err)
	defer c.Close()
	value, err := redis.String(c.Do("GET", "k"))
	require.NoError(t, err)
	assert.Equal(t, "here", value)
}

func TestADialerSaysWhatIsWrongWithoutSecrets(t *testing.T) {
	t.Parallel()
	_, _, err := Dialer("redis://:hunter2@host:port")
	require.Error(t, err)
	assert.NotContains(t, err.Error(), "hunter2")
	_, _, err = Dialer("redis://host", DialTimeout(-1))
	assert.ErrorContains(t, err, "DialTimeout")

	r := newRig(t)
	r.RequireAuth("right")
	_, dial, err := Dialer("redis://:hunter2@" + r.Addr())
	require.NoError(t, err)
	_, err = dial(t.Context())
	assert.ErrorIs(t, err, ErrAuth)
	assert.NotContains(t, err.Error(), "hunter2")
	assert.NotContains(t, err.Error(), r.Addr())
}

func TestADialerDoesNotWaitForAServerThatHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0") // never accepts
	require.NoError(t, err)
	defer l.Close()
	_, dial, err := Dialer("redis://:word@"+l.Addr().String(), DialTimeout(50*time.Millisecond))
	require.NoError(t, err)
	_, err = dial(t.Context())
	assert.ErrorIs(t, err, errHandshake)
}
