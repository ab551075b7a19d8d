package redlock

import "strings"

// The keys on a node besides the locks' own. Each has the Locker's prefix, so
// that sets of clients with different prefixes do not meddle with each other.
const (
	epochKey      = "redlock:epoch"
	quarantineKey = "redlock:quarantine"
	counterKey    = "redlock:fence:" // and the lock's name
	queueKey      = "redlock:queue:" // and the lock's name, and perhaps more
)

// Reserved reports whether a lock with that key would stand in the way of the
// library's own keys on the servers, of any Locker with any prefix. Such keys are no
// locks, and Acquire refuses their names.
func Reserved(key string) bool {
	return strings.HasSuffix(key, epochKey) || strings.HasSuffix(key, quarantineKey) ||
		strings.Contains(key, counterKey) || strings.Contains(key, queueKey)
}
