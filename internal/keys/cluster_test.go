package keys

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestAClusterOfOneShardHasAllKeys(t *testing.T) {
	t.Parallel()
	for info, says := range map[string]string{
		"": "",
		"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_size:1\r\n":   "",
		"cluster_state:fail\r\ncluster_slots_assigned:16384\r\ncluster_size:1\r\n": "", // for the moment
		"cluster_state:ok\r\ncluster_slots_assigned:16384\r\ncluster_size:3\r\n":   "3 shards",
		"cluster_state:fail\r\ncluster_slots_assigned:0\r\ncluster_size:0\r\n":     "0 of its 16384 slots",
		"cluster_slots_assigned:5461\r\ncluster_size:1\r\n":                        "5461 of its 16384 slots",
	} {
		if says == "" {
			assert.Empty(t, Missing(info), info)
		} else {
			assert.Contains(t, Missing(info), says, info)
		}
	}
}
