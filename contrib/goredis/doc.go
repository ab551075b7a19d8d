// Package goredis makes the nodes of a redlock.Locker from clients of
// github.com/redis/go-redis/v9, one for each server, so that a program says once where its servers
// are and how it logs in.
//
//	nodes, err := goredis.Nodes([]*redis.Client{first, second, third})
//	locker, err := redlock.New(nodes)
//
// # What is taken from a client
//
// The address and the network, the Dialer, which does TLS, and the database; Username and Password,
// or the provider that takes their place, in the order in which go-redis prefers them:
// StreamingCredentialsProvider, CredentialsProviderContext, CredentialsProvider.
//
// A provider is asked for each new connection. When credentials are renewed, a connection goes on
// with those that it began with for as long as the server leaves it open, and the next one has the
// new ones. The locks that are held meanwhile stay held, because they live on the servers and are
// renewed on the next connection. go-redis logs in again on connections that are open, when a
// streaming provider tells new credentials; a node subscribes only while it asks, and logs in again
// with the option pool.Reauthenticate, which asks each kind of provider.
//
// # What is not
//
// Hooks, OnConnect, Limiter, retries, timeouts, Protocol, ClientName and all about pools have no
// effect. In place of the timeouts there are pool.DialTimeout, whose default is 1 s, and
// pool.StallTimeout. With TLS the Dialer of go-redis heeds no context, so a server that hangs while
// it is dialled is tried again only after the client's DialTimeout, which is 5 s by default.
//
// The client's connections are not shared, and it may be closed before the Locker. A node has
// connections of its own, because a lock's requests must keep their order, so that no release
// overtakes the SET that it undoes; because a broken connection is killed on the server before the
// next one is used, and its requests would be another caller's, too; because a call that stops
// waiting still counts the reply; and because hints come on a connection that does nothing else. See
// package pool.
//
// # Servers that are no node
//
//   - A client of NewFailoverClient is refused, because Sentinel names its server, and may have
//     promoted one while another still grants locks. A URL with standbys is a node for such servers:
//     see package pool. Its node goes beside those of Nodes.
//   - A ClusterClient and a Ring are several servers. Give a client for each server of a Ring, and
//     not those of Ring.ForEachShard, which leaves out the servers that are down. A client of one
//     node of a Redis Cluster is taken, and that node votes if its cluster has one shard.
package goredis
