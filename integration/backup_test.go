package integration_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/redlock"
)

// TestBackupCostsNoVote: two of three servers are backed up over the network at the same time, as
// cron would do, and later free the backlog of the backup. Both steps change their master_replid.
// No try fails during that time, whether the client is busy, idle or new.
func TestBackupCostsNoVote(t *testing.T) {
	t.Parallel()
	r := newRig(t, fleet.Options{Nodes: 3, Volatile: true})
	if strings.HasPrefix(r.version(t, 0), "redis_version:6.") {
		t.Skip("since Redis 7.0: INFO tells what was read as a replica")
	}
	dir := t.TempDir()
	backedUp := []int{0, 1}
	for _, i := range backedUp {
		r.must(t, i, "CONFIG", "SET", "repl-diskless-sync-delay", 0)
	}
	busy, idle := open(t, r.URLs(), guarding(steadyTTL)...), open(t, r.URLs(), guarding(steadyTTL)...)
	trusted(t, busy)
	trusted(t, idle)
	held := acquire(t, busy, "held")

	ctx, cancel := context.WithCancel(t.Context())
	var tries atomic.Int64
	var worker sync.WaitGroup
	defer worker.Wait()
	defer cancel()
	worker.Go(func() {
		for ctx.Err() == nil {
			lock, err := busy.TryAcquire(context.Background(), "busy")
			if !assert.NoError(t, err) || !assert.NoError(t, lock.Release(context.Background())) {
				return
			}
			tries.Add(1)
		}
	})
	works := func() {
		t.Helper()
		before := tries.Load()
		poll(t, failAfter, func() error {
			if tries.Load() < before+10 && !t.Failed() {
				return errors.New("the busy client does not go on")
			}
			return nil
		})
		for name, l := range map[string]*redlock.Locker{"idle": idle, "new": open(t, r.URLs(), guarding(steadyTTL)...)} {
			lock, err := l.TryAcquire(context.Background(), "another")
			require.NoError(t, err, name)
			votes(t, lock, 3)
			require.NoError(t, lock.Release(context.Background()), name)
		}
		votes(t, held, 3)
	}
	dataSets := func() (ids []string) {
		for _, i := range backedUp {
			text, err := redis.String(r.must(t, i, "INFO", "replication"), nil)
			require.NoError(t, err)
			_, id, _ := strings.Cut(text, "master_replid:")
			ids = append(ids, id[:40])
		}
		return ids
	}

	first := dataSets()
	var backups sync.WaitGroup
	for _, i := range backedUp {
		host, port, _ := strings.Cut(r.addr(i), ":")
		file := filepath.Join(dir, strconv.Itoa(i))
		backups.Go(func() {
			out, err := exec.Command("redis-cli", "-h", host, "-p", port, "--rdb", file).CombinedOutput()
			assert.NoError(t, err, string(out))
			assert.FileExists(t, file)
		})
	}
	backups.Wait()
	works()
	second := dataSets()
	for _, i := range backedUp {
		r.must(t, i, "CONFIG", "SET", "repl-backlog-ttl", 1)
		r.awaitInfo(t, i, "replication", "repl_backlog_active:0")
	}
	works()
	third := dataSets()
	for i := range backedUp {
		assert.NotEqual(t, first[i], second[i])
		assert.NotEqual(t, second[i], third[i])
	}
	assert.True(t, held.Valid())
}
