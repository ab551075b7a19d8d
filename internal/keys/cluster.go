package keys

import (
	"fmt"
	"strings"
)

// slots is how many a Redis Cluster has.
const slots = "16384"

// Missing returns why a server in cluster mode does not have the keys of all locks, by its answer to
// CLUSTER INFO, or nothing if it does: a cluster of one shard keeps all of them on one primary.
func Missing(clusterInfo string) string {
	told := map[string]string{}
	for line := range strings.Lines(clusterInfo) {
		if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			told[field] = value
		}
	}
	switch assigned, shards := told["cluster_slots_assigned"], told["cluster_size"]; {
	case assigned == "":
		return ""
	case assigned != slots:
		return fmt.Sprintf("%s of its %s slots are assigned", assigned, slots)
	case shards != "1":
		return fmt.Sprintf("it has %s shards", shards)
	}
	return ""
}
