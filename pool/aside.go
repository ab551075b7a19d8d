package pool

import (
	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/redlock"
)

// An aside takes the answer to a command that the connection has put between
// the requests by itself. Such a call has no request: nobody is owed a reply,
// and it ends with its connection.
type aside func(answer any, failure redis.Error)

// Receive makes an aside fit where receivers go. It is never called.
func (aside) Receive(int, redlock.Reply) {}
