package doctor

import (
	"context"
	"fmt"
	"net/url"

	"github.com/gomodule/redigo/redis"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool"
)

// openMembers returns the servers of the URL's node, or nil if it is a single server.
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

// standby checks whether the server votes for its node, if the node has several servers.
func (v *visit) standby() {
	isKnown := !v.Who.IsNameless() && v.Answer("GET "+record.PrimaryKey).Err == ""
	switch several := len(v.server.Members) > 0; {
	case several && !v.settings.Guard:
		v.add(Finding{Fatal, checkStandby, "its node has several servers, but the memory guard is off", "a promoted replica could grant held locks, so clients refuse the node", "omit --memory-guard=false"})
	case isKnown && v.Who.IsConfirmed():
		v.fine(checkStandby, "it is confirmed as the primary of its node")
		if ttl := v.setting("repl-backlog-ttl"); several && ttl != "" && ttl != "0" {
			v.add(Finding{Note, checkStandby, "its repl-backlog-ttl is " + ttl, "after that many seconds without replicas, clients treat it as failed over: it has no vote until one longest TTL after its standbys return", "CONFIG SET repl-backlog-ttl 0"})
		}
	case several && !isKnown:
		v.add(Finding{Fatal, checkStandby, "it hides whether it is the primary of its node", "a node with standbys has no vote unless its primary is known", "permit INFO, and GET and SET on " + record.PrimaryKey})
	case several:
		v.add(Finding{Warning, checkStandby, "it is not confirmed as the primary of its node", "it has no vote until a client has seen all its standbys as replicas, with clocks within a second", "check that the standbys run with correct clocks, that clients reach them, and that clients may SET " + record.PrimaryKey})
	case v.Who.Primary != "":
		v.add(Finding{Fatal, checkStandby, "its node has several servers, and it is not confirmed as the primary", "it has no vote unless the URL names its standbys", "name its standbys in the URL, as other clients do, or delete the key " + record.PrimaryKey + " if it no longer has standbys"})
	}
}

// members examines the other servers of the node, each on its own connection.
func (v *visit) members(ctx context.Context) {
	for _, s := range v.server.Members {
		is, link, err := lookAt(ctx, s)
		switch {
		case err != nil:
			v.add(Finding{Warning, checkStandby, fmt.Sprintf("server %s of its node cannot be reached: %v", s.Name, err), "after a failover the node has no vote until that server is a replica", "check that it runs"})
		case is.Role != "slave" && is.RunID != v.Who.RunID:
			v.add(Finding{Warning, checkStandby, fmt.Sprintf("server %s of its node is a primary, too", s.Name), "only a confirmed primary has the vote", "make one a replica of the other"})
		case is.Role == "slave" && link != "" && link != "connected":
			v.add(Finding{Warning, checkStandby, fmt.Sprintf("server %s of its node is a disconnected replica: its link is %q", s.Name, link), "it lacks the keys of the primary, so it cannot take over", "see its log, and check masterauth, masteruser, and with TLS tls-replication yes"})
		}
	}
}

// lookAt returns the identity of the server, and for a replica the state of the link to its
// primary.
func lookAt(ctx context.Context, s Server) (is record.Server, link string, err error) {
	c, err := s.Dial(ctx)
	if err != nil {
		return is, "", err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	asked := inspect.Interview{Conn: c}
	if err := asked.Identify([]any{"INFO", "server"}); err != nil {
		return is, "", err
	}
	role := asked.Answer("ROLE")
	if role.Err != "" {
		return is, "", role.Err
	}
	if list := role.List(); len(list) > 3 {
		link, _ = redis.String(list[3], nil)
	}
	return asked.Who, link, nil
}
