package backend

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/need"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// testLimit bounds waits for what must happen; only failing tests reach it.
const testLimit = time.Minute

// start starts servers, if tests should.
func start(t *testing.T, k Kind, nodes int) *Servers {
	t.Helper()
	need.Product(t, k.product().name(), Available(k))
	s, err := Start(t.Context(), k, nodes)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

func TestWhenTheLeaderIsKilledAnotherIsElectedAndItComesBack(t *testing.T) {
	for _, k := range []Kind{EtcdNoSync, ZooKeeperNoSync} {
		t.Run(string(k), func(t *testing.T) {
			s := start(t, k, 3)
			ctx, cancel := context.WithTimeout(t.Context(), testLimit)
			defer cancel()
			first, err := s.Leader(ctx)
			require.NoError(t, err)
			require.NoError(t, s.Kill(ctx, first))
			second, err := s.Leader(ctx)
			require.NoError(t, err)
			assert.NotEqual(t, first, second)
			require.NoError(t, s.Restart(ctx, first, fleet.Kept)) // returns when it serves clients
			assert.ErrorIs(t, s.Restart(ctx, first, fleet.Lost), fleet.ErrUnsupported)

			dir := s.driver.Dir()
			require.NoError(t, s.Close())
			assert.NoDirExists(t, dir)
			for i := range 3 {
				assert.Error(t, s.driver.Ended(i), "node %d runs on", i)
			}
		})
	}
}

func TestPostgreSQLIsOneServerThatCanBeKilled(t *testing.T) {
	s := start(t, PostgreSQL, 5)
	assert.Len(t, s.URLs(), 1)
	ctx, cancel := context.WithTimeout(t.Context(), testLimit)
	defer cancel()
	leader, err := s.Leader(ctx)
	require.NoError(t, err)
	assert.Zero(t, leader)
	require.NoError(t, s.Kill(ctx, 0))
	require.NoError(t, s.Restart(ctx, 0, fleet.Kept))
}

func TestWhatIsWrittenToDiskIsWhatTheKindSays(t *testing.T) {
	t.Parallel()
	all := []node{{dir: t.TempDir(), ports: []int{1, 2, 3}}}
	unsafe := "--unsafe-no-fsync"
	assert.NotContains(t, Etcd.product().command(all, 0).Args, unsafe)
	assert.Contains(t, EtcdNoSync.product().command(all, 0).Args, unsafe)
	for k, line := range map[Kind]string{ZooKeeper: "forceSync=yes\n", ZooKeeperNoSync: "forceSync=no\n"} {
		all[0].dir = t.TempDir()
		require.NoError(t, k.product().prepare(all, 0))
		config, err := os.ReadFile(filepath.Join(all[0].dir, "zoo.cfg"))
		require.NoError(t, err)
		assert.Contains(t, string(config), line)
	}
	for _, k := range []Kind{RedisEverySec, RedisAlways, Etcd, EtcdNoSync, ZooKeeper, ZooKeeperNoSync, PostgreSQL} {
		assert.NotEmpty(t, k.Durability(), k)
		_, redis := k.Persistence()
		assert.Equal(t, slices.Contains([]Kind{RedisEverySec, RedisAlways}, k), redis, k)
		assert.Equal(t, redis, k.product() == nil, k)
	}
}

func TestWhatIsMissingIsSaid(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	assert.ErrorContains(t, Available(Etcd), "etcd-server")
	assert.ErrorContains(t, Available(ZooKeeper), "zookeeper")
	_, err := Start(t.Context(), Etcd, 1)
	assert.ErrorContains(t, err, "etcd-server")
}
