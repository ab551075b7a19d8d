package wire

import (
	"errors"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

// The messages come from real servers, Redis 7.0 unless a version is given.
func TestServerErrorsAreClassified(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]struct {
		err   error
		fatal bool
	}{
		"READONLY You can't write against a read only replica.":                                           {record.ErrReplica, true},
		"LOADING Redis is loading the dataset in memory":                                                  {ErrLoading, true},
		"NOAUTH Authentication required.":                                                                 {ErrAuth, true},
		"WRONGPASS invalid username-password pair or user is disabled.":                                   {ErrAuth, true},
		"WRONGTYPE Operation against a key holding the wrong kind of value script: 1, on @user_script:2.": {protocol.ErrWrongType, false},

		// Redis 6.2 wraps the error of a script.
		"ERR Error running script (call to f_1): @user_script:2: WRONGTYPE Operation against a key":             {protocol.ErrWrongType, false},
		"ERR Error running script (call to f_1): @user_script:3: -READONLY You can't write against a read only": {record.ErrReplica, true},

		// An ACL that forbids a command.
		"NOPERM this user has no permissions to run the 'set' command": {ErrPermission, false},
		"NOPERM No permissions to access a key":                        {ErrPermission, false}, // 7.2, Valkey

		// An ACL that forbids a command in a script.
		"ERR Error running script (call to f_1): @user_script:2: @user_script: 2: The user executing the script can't run this command or subcommand": {ErrPermission, false}, // 6.0, 6.2
		"ERR Error running script (call to f_1): @user_script:2: @user_script: 2: -NOPERM this user has no permissions to run the 'set' command":      {ErrPermission, false},
		"ERR The user executing the script can't run this command or subcommand script: 948f, on @user_script:1.":                                     {ErrPermission, false}, // 7.0
		"ERR ACL failure in script: User locks has no permissions to run the 'set' command script: 948f, on @user_script:1.":                          {ErrPermission, false}, // 7.2, Valkey, Redict

		// A node of a Redis Cluster.
		"MOVED 16287 127.0.0.1:7002":                              {record.ErrCluster, false},
		"ASK 16287 127.0.0.1:7002":                                {record.ErrCluster, false},
		"TRYAGAIN Multiple keys request during rehashing of slot": {nil, false},
		"CROSSSLOT Keys in request don't hash to the same slot":   {record.ErrCluster, false},
		"CLUSTERDOWN Hash slot not served":                        {nil, false},
		"ERR SELECT is not allowed in cluster mode":               {record.ErrCluster, false},
		"ERR Script attempted to access a non local key in a cluster node script: 948f, on @user_script:1.":      {record.ErrCluster, false},
		"ERR Script attempted to access keys that do not hash to the same slot script: 948f, on @user_script:1.": {record.ErrCluster, false},
		"ERR Error running script (call to f_1): @user_script:2: @user_script: 2: MOVED 16287 127.0.0.1:7002":    {record.ErrCluster, false},

		// An unknown command.
		"ERR unknown command 'EVALSHA'": {ErrUnsupported, false},
		"ERR Unknown Redis command called from script script: 8f08, on @user_script:1.":                                                                    {ErrUnsupported, false},
		"ERR Error running script (call to f_1): @user_script:2: @user_script: 2: Unknown Redis command called from Lua script":                            {ErrUnsupported, false}, // 6.2
		"ERR Error running script (call to f_1): @user_script:2: @user_script: 2: Write commands not allowed after non deterministic commands. Call redis": {nil, false},            // 4.0

		// no meaning of their own
		"BUSY Redis is busy running a script.": {nil, true},
		"OOM command not allowed when used":    {nil, false},
		"ERR":                                  {nil, false},
		"":                                     {nil, false},
	} {
		err, fatal := Explain(redis.Error(message))
		assert.Equal(t, want.fatal, fatal, message)
		words := inScript.ReplaceAllString(message, "")
		assert.ErrorContains(t, err, words, "the server's own words")
		assert.NotContains(t, err.Error(), ", on @user_script:", "which script it was tells users nothing")
		for _, meaning := range []error{record.ErrReplica, ErrLoading, ErrAuth, ErrPermission, protocol.ErrWrongType, record.ErrCluster, ErrUnsupported} {
			assert.Equal(t, meaning == want.err, errors.Is(err, meaning), message)
		}
	}
}

// secret is the value of a lock. A client that knows it can release the lock.
const secret = "5be2a7c07e1d4f0c9c0f8a1b2c3d4e5f60718293"

// TestServerErrorRepeatsNoPartOfARequest: it repeats at most one line of any other text.
func TestServerErrorRepeatsNoPartOfARequest(t *testing.T) {
	t.Parallel()
	for _, message := range []string{
		"ERR unknown command 'SET', with args beginning with: 'k' '" + secret + "' 'NX' 'PX' '10000' ", // Sentinel 7.0
		"ERR unknown command `SET`, with args beginning with: `k`, `" + secret + "`, `NX`, ",           // 6.2
		"ERR unknown command 'SET', with args beginning with: 'k' '" + secret[:17],
		"unknown command SET, WITH ARGS BEGINNING WITH: k " + secret, // a proxy
		"ERR syntax error near '" + secret + "'",
		"ERR syntax error near '" + secret[11:25] + "...'",
		"ERR " + secret + " and " + secret,
	} {
		r := &protocol.Request{Op: protocol.OpAcquire, Key: "k", Value: secret}
		err := (&Call{Request: r}).Answer(nil, redis.Error(message)).Reply.Err
		for i := range len(secret) - 8 {
			assert.NotContains(t, err.Error(), secret[i:i+8], message)
		}
		assert.Regexp(t, "SET|syntax|and", err.Error(), "what is harmless is shown")
	}
	for _, code := range []string{"ERR ", "NOAUTH ", ""} {
		words := strings.Repeat("x", maxLine/2)
		err, _ := Explain(redis.Error(code + words))
		assert.ErrorContains(t, err, words[:300])
		assert.Less(t, len(err.Error()), 700)
	}
}
