package judge

import (
	"fmt"

	"github.com/redquorum/redquorum/chaos/internal/history"
)

// lateWrites finds writes that the register must not have taken: with a token below one that it
// took before, or one that is not the writer's; and, whatever the tokens say, writes of a client
// that had the lock before one whose write is there already. Locks without tokens are those of
// programs that have none. The events must be in the register's order.
func lateWrites(events []history.Event, all []*history.Acquisition) (found []Violation) {
	owners := map[history.Key]*history.Acquisition{}
	for _, a := range all {
		owners[history.Key{Who: a.Who, Op: a.Op}] = a
	}
	highest := map[string]int64{}               // token
	latest := map[string]*history.Acquisition{} // asked for last, of those that wrote
	for _, e := range events {
		if e.Kind != history.Accepted {
			continue
		}
		bad := func(format string, args ...any) {
			found = append(found, Violation{register, e.Name, e.At, fmt.Sprintf(format, args...)})
		}
		if top := highest[e.Name]; e.Token < top {
			bad("client %d wrote with the token %d after a write with %d", e.Who, e.Token, top)
		}
		highest[e.Name] = max(highest[e.Name], e.Token)
		a := owners[history.Key{Who: e.Who, Op: e.Op}]
		if a == nil || !a.Held() || a.Keys()[0] != e.Name || a.Token != e.Token || !a.Lock.HasToken() && a.Lock != history.Plain {
			bad("client %d wrote with the token %d, which is not its own", e.Who, e.Token)
			continue
		}
		last := latest[e.Name]
		if last != nil && a.Granted < since(last) {
			bad("%v wrote after %v, which has the lock since later", a, last)
		}
		if last == nil || since(a) > since(last) {
			latest[e.Name] = a
		}
	}
	return found
}

// since is the moment before which another must have been granted its lock to write too late, after
// a. Tokens tell in which order the locks were taken while both were asked for. Without them, the
// holder that was granted its lock first must write first: if it writes second, one of the two
// wrote when it did not have the lock.
func since(a *history.Acquisition) int64 {
	if a.Lock.HasToken() {
		return a.Asked
	}
	return a.Granted
}

// keysLeft finds keys that servers had when no client could hold a lock any more.
func keysLeft(events []history.Event) (found []Violation) {
	for _, e := range events {
		if e.Kind == history.Left {
			found = append(found, Violation{leftover, e.Name, e.At,
				fmt.Sprintf("node %d still has the key: %s", e.Who, e.Text)})
		}
	}
	return found
}
