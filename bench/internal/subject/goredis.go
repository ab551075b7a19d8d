package subject

import (
	"sync"

	"github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredislib "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const goredisNote = "go-redis with its defaults (reads end after 5 s), but a connection for each caller."

// openGoredis is redsync's pool over go-redis.
func openGoredis(t *target, cfg Config) (redis.Pool, func() error) {
	client := newGoredis(t, cfg)
	return goredis.NewPool(client), client.Close
}

func newGoredis(t *target, cfg Config) *goredislib.Client {
	quietGoredis()
	return goredislib.NewClient(&goredislib.Options{
		Network: t.network, Addr: t.address, TLSConfig: t.tls,
		Username: t.user, Password: t.password, DB: t.database,
		PoolSize: max(cfg.Callers, 16),
	})
}

// quietGoredis keeps a line for each server that is down, which the errors tell
// as well, off the screen.
var quietGoredis = sync.OnceFunc(logging.Disable)
