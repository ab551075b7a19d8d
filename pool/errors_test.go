package pool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
)

// The messages are those of real servers: Redis 7.0 where nothing else is said.
func TestServersErrorsHaveAMeaning(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]struct {
		err  error
		sick bool
	}{
		"READONLY You can't write against a read only replica.":                                           {ErrReplica, true},
		"LOADING Redis is loading the dataset in memory":                                                  {ErrLoading, true},
		"NOAUTH Authentication required.":                                                                 {ErrAuth, true},
		"WRONGPASS invalid username-password pair or user is disabled.":                                   {ErrAuth, true},
		"NOPERM this user has no permissions to run the 'set' command":                                    {ErrPermission, false},
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 1, on @user_script:2.": {ErrWrongType, false},
		"ERR The user executing the script can't run this command or subcommand script: 1":                {ErrPermission, false},
		// Redis 6.2
		"ERR Error running script (call to f_1): @user_script:2: WRONGTYPE Operation against a key":             {ErrWrongType, false},
		"ERR Error running script (call to f_1): @user_script:3: -READONLY You can't write against a read only": {ErrReplica, true},
		// no meaning of their own
		"BUSY Redis is busy running a script.": {nil, true},
		"OOM command not allowed when used":    {nil, false},
		"ERR unknown command":                  {nil, false},
		"ERR":                                  {nil, false},
		"":                                     {nil, false},
	} {
		err, sick := explain(redis.Error(message))
		assert.Equal(t, want.sick, sick, message)
		assert.ErrorContains(t, err, message, "the server's own words")
		for _, meaning := range []error{ErrReplica, ErrLoading, ErrAuth, ErrPermission, ErrWrongType} {
			assert.Equal(t, meaning == want.err, errors.Is(err, meaning), message)
		}
	}
}

func TestDialErrorsDoNotRepeatTheAddress(t *testing.T) {
	t.Parallel()
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 6379}, Err: syscall.ECONNREFUSED}
	err := explainDial(fmt.Errorf("wrapped: %w", refused))
	assert.ErrorIs(t, err, syscall.ECONNREFUSED)
	assert.NotContains(t, err.Error(), "10.0.0.1")
	assert.Equal(t, errHandshake, explainDial(context.DeadlineExceeded))
	plain := errors.New("something else")
	assert.Equal(t, plain, explainDial(plain))
}
