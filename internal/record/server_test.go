package record

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestClusterOfOneShardHasAllKeys(t *testing.T) {
	t.Parallel()
	for info, says := range map[string]string{
		"": "",
		"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_size:1\r\n":   "",
		"cluster_state:fail\r\ncluster_slots_assigned:16384\r\ncluster_size:1\r\n": "", // temporarily
		"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_size:3\r\n":   "3 shards",
		"cluster_state:fail\r\ncluster_slots_assigned:0\r\ncluster_size:0\r\n":     "0 of its 16384 slots",
		"cluster_slots_assigned:5461\r\ncluster_size:1\r\n":                        "5461 of its 16384 slots",
	} {
		if says == "" {
			assert.Empty(t, missing([]byte(info)), info)
		} else {
			assert.Contains(t, missing([]byte(info)), says, info)
		}
	}
}

func TestFieldsAreBounded(t *testing.T) {
	t.Parallel()
	assert.Len(t, Field([]byte("a:b\r\nmaxmemory_policy:"+strings.Repeat("x", 1<<20)), "maxmemory_policy"), maxField)
	assert.Equal(t, "b", Field([]byte("a:b\r\n"), "a"))
	assert.Empty(t, Field([]byte("xa:b\r\n"), "a"))
}

// TestServerWithoutAVoteIsUnfit: ROLE shows this, or INFO if ROLE is not permitted.
func TestServerWithoutAVoteIsUnfit(t *testing.T) {
	t.Parallel()
	for says, s := range map[string]Server{
		"":                       {Role: "master", Replication: Replication{Role: "master"}},
		"is a Sentinel":          {Role: "sentinel"},
		"its primary a:1)":       {Role: "slave", Of: "a:1"},
		"active-replica":         {Role: "active-replica"},
		"must not vote: use":     {Replication: Replication{Role: "slave"}},
		"(it has 3 shards)":      {Role: "master", Missing: "it has 3 shards"},
		"its role is replicator": {Role: "replicator"},
	} {
		if says == "" {
			assert.NoError(t, s.Unfit())
		} else {
			assert.ErrorContains(t, s.Unfit(), says)
		}
	}
	var s Server
	s.ReadRole([]any{[]byte("slave"), []byte("10.9.8.7"), int64(6379)})
	assert.ErrorIs(t, s.Unfit(), ErrReplica)
	assert.ErrorContains(t, s.Unfit(), "10.9.8.7:6379")
}
