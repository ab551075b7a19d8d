package subject

import (
	"time"

	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/redigo"
	redigolib "github.com/gomodule/redigo/redis"
)

const redigoNote = "Pooled connections, enough idle ones that none is dialled anew under load. " +
	"redigo has no timeouts by default, so that a hung server would block it for good: here connecting, reading and writing end after 500 ms, or a quarter of the TTL."

// openRedigo is redsync's pool over redigo's.
func openRedigo(t *target, cfg Config) (redis.Pool, func() error) {
	timeout := min(cfg.TTL/4, 500*time.Millisecond)
	pool := &redigolib.Pool{
		// With fail-fast, requests of earlier cycles are under way as well.
		MaxIdle:     4 * max(cfg.Callers, 16),
		IdleTimeout: 240 * time.Second,
		Dial: func() (redigolib.Conn, error) {
			c, err := redigolib.Dial(t.network, t.address,
				redigolib.DialConnectTimeout(timeout), redigolib.DialReadTimeout(timeout), redigolib.DialWriteTimeout(timeout),
				redigolib.DialUsername(t.user), redigolib.DialPassword(t.password), redigolib.DialDatabase(t.database),
				redigolib.DialUseTLS(t.tls != nil), redigolib.DialTLSConfig(t.tls))
			return c, t.hide(err)
		},
	}
	return redigo.NewPool(pool), pool.Close
}
