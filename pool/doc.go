// Package pool speaks to Redis servers: each is a [Node] with one pipelined redigo
// connection.
//
// # Which function to use
//
//   - [Open] takes URLs, and [OpenWith] takes options besides: [TLS], [TLSFunc], [DialTimeout],
//     [StallTimeout] and [Log]; [Credentials] and [Reauthenticate] for passwords that end.
//   - [NetDial] is the option for servers that are reached through a tunnel or a proxy: a function
//     that returns a [net.Conn].
//   - [FromDial] makes a node of a function that returns a redigo connection.
//   - [Dialer] connects as Open does, for tools.
//
// A dial function is all that a transport of one's own needs. The scripts, the encoding of requests
// and the releases that must be retried are the same for every node.
//
// # How a node works
//
// A quorum lock sends small requests to every server at the same time and must not wait for any
// one of them. A classic connection pool serves that badly: a goroutine and a connection for each
// of N requests, a system call for each command, and a connection thrown away with each timeout,
// with a request still in it that the server will run. Here one goroutine writes the whole queue in
// one system call, and one reads the replies. A caller that stops waiting costs nothing: its reply
// is still read, and still counted.
//
// All requests to a node travel on one connection, in order, so that a release can never overtake
// the SET that it undoes. When the connection breaks, the next one first kills the old one on the
// server (CLIENT KILL ID), which may still have requests in its buffer, and then sends the releases
// that were not confirmed.
//
// While a caller waits for a lock, or holds one for longer than a moment, a node has a second
// connection, on which the server tells that the lock's key has changed (CLIENT TRACKING, as for
// client-side caching). A server that does not offer this is as safe: waiters poll it, and holders
// learn at their next renewal that a key has gone.
//
// # What a server needs
//
// The servers are Redis of version 6 or later, or Valkey; they are primaries, and independent of
// each other. An ACL user needs
//
//	+set +eval +evalsha +script|load +get +del +pexpire +pttl +time
//
// on the keys of the locks, on redlock:epoch behind the prefix of the locks, and on redlock:*; +select
// where the URL names a database; and should have +role, +info, +client|id and +client|kill, and
// +cluster|info in cluster mode. Without these, replicas, restarts with old data and broken
// connections that are still open on the server are not noticed: see [Log]. Those who wait in turn
// need
//
//	+zadd +zrem +zrange +zrank +zcard +hset +hget +hdel
//
// on the queues' keys as well, or they are not served in order. Locks with a fencing token need
// +zadd and +zscore on redlock:fence:*. Readers need all of these and
//
//	+zscore +zremrangebyscore +exists
//
// on redlock:readers:* and redlock:intent:*. Optional on the keys of the locks, so that a release
// costs the server no script, is one of
//
//	+delex (Redis 8.4 or later)    +delifeq (Valkey 9 or later)
//
// which other servers do not know. For these there is +mget, with which the releases of many callers
// are one script. Optional, so that waiters need not poll and losses are told at once, are
//
//	+client|tracking +client|caching +client|id +subscribe &__redis__:invalidate
//
// and +client|setname, which lets CLIENT LIST show what a connection is for.
//
// # Servers that fail over
//
// A node can be several servers, of which one at a time is the primary, as Redis Sentinel has it:
// the URL names the others as standbys.
//
//	redis://10.0.0.1:6379?standby=10.0.0.11:6379
//
// The primary votes once all others have been seen as its replicas, so that no two of them vote
// together, and the memory guard treats it as a server that was restarted with old data. A client
// finds this out by itself and asks no Sentinel, which may have promoted one server while another
// still grants. Such a node needs INFO and ROLE, GET and SET on the key redlock:primary (without a
// prefix), and the memory guard; each address stands for one server, whatever its role, and the
// clocks of the servers are less than a second apart. docs/OPERATING.md has the steps.
//
// A Sentinel is refused ([ErrSentinel]), and so is a node of a Redis Cluster with several shards
// ([ErrCluster]). The primary of a cluster of one shard has all keys, and is a server as any other; keys
// of different slots are renewed one by one there. No error repeats the value of a lock, even where the
// server's own message does.
package pool
