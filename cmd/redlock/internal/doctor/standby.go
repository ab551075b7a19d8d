package doctor

import (
	"context"
	"fmt"
	"net/url"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool"
)

// openMembers returns the servers of the URL's node, or none if it is the only one.
func openMembers(u *url.URL, opts []pool.Option) (all []Server, err error) {
	standbys := u.Query()["standby"]
	if len(standbys) == 0 {
		return nil, nil
	}
	for _, address := range append([]string{u.Host}, standbys...) {
		one := *u
		one.Host, one.RawQuery = address, ""
		name, dial, err := pool.Dialer(one.String(), opts...)
		if err != nil {
			return nil, err
		}
		all = append(all, Server{Name: name, Dial: dial})
	}
	return all, nil
}

// standby finds out whether the server has the vote of its node, if that is one of several.
func (v *visit) standby() {
	primary := v.answers["GET "+record.PrimaryKey]
	confirmed, data := primary.text(), v.info("replication")["master_replid"]
	isKnown := v.runID != "" && data != "" && primary.err == ""
	switch several := len(v.server.Members) > 0; {
	case several && !v.settings.Guard:
		v.add(Finding{Fatal, checkStandby, "it is one of the servers of a node, and the memory guard is off", "a promoted primary could grant held locks, so clients refuse it", "omit --memory-guard=false"})
	case isKnown && confirmed == v.runID+"/"+data:
		v.fine(checkStandby, "it is confirmed as the primary of its node")
		if ttl := v.setting("repl-backlog-ttl"); several && ttl != "" && ttl != "0" {
			v.add(Finding{Note, checkStandby, "its repl-backlog-ttl is " + ttl, "after that many seconds without replicas it counts as failed over: it has no vote until the longest TTL after it sees its standbys again", "CONFIG SET repl-backlog-ttl 0"})
		}
	case several && !isKnown:
		v.add(Finding{Fatal, checkStandby, "it hides whether it is the primary of its node", "a node with standbys has no vote unless that is known", "permit INFO, and GET and SET on " + record.PrimaryKey})
	case several:
		v.add(Finding{Warning, checkStandby, "it is not confirmed as the primary of its node", "it has no vote until a client has seen all its standbys as replicas whose clocks are within a second of its own", "check the standbys and their clocks, that clients reach them, and that clients may SET " + record.PrimaryKey})
	case confirmed != "":
		v.add(Finding{Fatal, checkStandby, "it is one of the servers of a node, and not confirmed as its primary", "without its standbys in the URL it has no vote", "use the URL with its standbys, as other clients do, or delete the key " + record.PrimaryKey + " if it has no standbys now"})
	}
}

// members looks at the other servers of the node, on connections of their own.
func (v *visit) members(ctx context.Context) {
	for _, s := range v.server.Members {
		role, link, runID, err := roleOf(ctx, s)
		switch {
		case err != nil:
			v.add(Finding{Warning, checkStandby, fmt.Sprintf("its server %s cannot be reached: %v", s.Name, err), "after a failover the node has no vote until that server is a replica", "check that it runs"})
		case role != "slave" && runID != v.runID:
			v.add(Finding{Warning, checkStandby, fmt.Sprintf("its server %s is a primary, too", s.Name), "only one that is confirmed has the vote", "make it a replica of the other"})
		case role == "slave" && link != "" && link != "connected":
			v.add(Finding{Warning, checkStandby, fmt.Sprintf("its server %s is a replica, and not connected: its link is %q", s.Name, link), "it lacks the keys of the primary, and cannot take over", "see its log, and check masterauth, masteruser, and with TLS tls-replication yes"})
		}
	}
}

// roleOf returns the role of a server, and of a replica the state of the link to its primary.
func roleOf(ctx context.Context, s Server) (role, link, runID string, err error) {
	c, err := s.Dial(ctx)
	if err != nil {
		return "", "", "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	asked, info := newQuestion("ROLE"), newQuestion("INFO", "server")
	v := visit{conn: c}
	if err := v.ask(asked, info); err != nil {
		return "", "", "", err
	}
	if asked.err != "" {
		return "", "", "", asked.err
	}
	if list, _ := redis.Values(asked.value, nil); len(list) > 3 {
		link, _ = redis.String(list[3], nil)
	}
	return asked.role(), link, info.fields()["run_id"], nil
}
