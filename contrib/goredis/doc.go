// Package goredis creates the nodes of a redlock.Locker from clients of
// github.com/redis/go-redis/v9, one per server. A program then configures the addresses and
// credentials of its servers only once.
//
//	nodes, err := goredis.Nodes([]*redis.Client{first, second, third})
//	locker, err := redlock.New(nodes)
//
// # Settings taken from a client
//
//   - the address, the network, and the Dialer, which does TLS
//   - the database
//   - Username and Password, or a provider in their place, in the order of preference of go-redis:
//     StreamingCredentialsProvider, CredentialsProviderContext, CredentialsProvider
//
// A node asks its provider before each new connection. After a renewal of the credentials, an
// existing connection keeps the old ones until the server closes it, and the next connection uses
// the new ones. Held locks stay held, because they live on the servers and are renewed on the next
// connection. When a streaming provider sends new credentials, go-redis logs in again on its open
// connections. A node subscribes only while it asks the provider. With the option
// pool.Reauthenticate, which asks any kind of provider, it logs in again, too.
//
// # Settings without effect
//
// Hooks, OnConnect, Limiter, retries, timeouts, Protocol, ClientName and all pool settings have no
// effect. pool.DialTimeout (default 1 s) and pool.StallTimeout replace the timeouts. With TLS, the
// Dialer of go-redis ignores the context, so a server that hangs during a dial is tried again only
// after the client's DialTimeout, 5 s by default.
//
// A node does not share the connections of the client, which may be closed before the Locker. It
// needs connections of its own for four reasons:
//
//   - The requests of a lock must keep their order, so that no release overtakes the SET that it
//     undoes.
//   - A broken connection is killed on the server before the next one is used, which would also
//     kill requests of other callers.
//   - A call that stops waiting still counts the reply.
//   - Hints arrive on a connection that has no other use.
//
// See package pool.
//
// # Clients that cannot be nodes
//
//   - A client of NewFailoverClient is refused, because Sentinel chooses its server, and may have
//     promoted one server while another still grants locks. For such servers use a URL with
//     standbys: see package pool. Its node can be combined with the nodes of Nodes.
//   - A ClusterClient and a Ring represent several servers. Pass one client per server of a Ring.
//     Do not use the clients of Ring.ForEachShard, which omits servers that are down. A client of a
//     single Redis Cluster node is accepted, and the node votes if its cluster has one shard.
package goredis
