// Package pool connects to Redis servers. Each server is a [Node] with one pipelined redigo
// connection.
//
// # Functions
//
//   - [Open] takes URLs, and [OpenWith] also takes options: [TLS], [TLSFunc], [DialTimeout],
//     [StallTimeout] and [Log]; [Credentials] and [Reauthenticate] for passwords that expire.
//   - [NetDial] is the option for servers behind a tunnel or a proxy: a function that returns a
//     [net.Conn].
//   - [FromDial] creates a node from a function that returns a redigo connection.
//   - [Dialer] connects like Open, for tools.
//
// A custom transport needs only a dial function. The scripts, the encoding of requests and the
// retries of releases are the same for every node.
//
// # How a node works
//
// A quorum lock sends small requests to every server at the same time and must not wait for any one
// of them. A classic connection pool serves that badly. It needs a goroutine and a connection for
// each of N requests, and a system call for each command. It also discards a connection with each
// timeout, with a request still in it that the server will run. In a node, one goroutine writes the
// whole queue in one system call, and one reads the replies. A caller that stops waiting costs
// nothing: its reply is still read, and still counted.
//
// All requests to a node travel on one connection, in order, so that a release can never overtake
// the SET that it undoes. When the connection breaks, the next one first kills the old one on the
// server (CLIENT KILL ID), which may still have requests in its buffer, and then sends the releases
// that were not confirmed.
//
// While a caller waits for a lock, or holds one for longer than a moment, a node has a second
// connection, on which the server reports changes of the lock's key (CLIENT TRACKING, as for
// client-side caching). Without this feature a server is just as safe: waiters poll it, and holders
// learn at their next renewal that a key has disappeared.
//
// # Requirements for a server
//
// The servers are Redis of version 6 or later, or Valkey; they are primaries, and independent of
// each other. An ACL user needs
//
//	+set +eval +evalsha +script|load +get +del +pexpire +pttl +time
//
// on the keys of the locks, on redlock:epoch after the prefix of the locks, and on redlock:*; and
// +select if the URL names a database. It should have +role, +info, +client|id and +client|kill,
// and +cluster|info in cluster mode. Without these, the node does not notice replicas, restarts
// with old data, and broken connections that are still open on the server: see [Log]. Waiters also
// need
//
//	+zadd +zrem +zrange +zrank +zcard +hset +hget +hdel
//
// on the keys of the queues; otherwise they are not served in order. Locks with a fencing token
// need +zadd and +zscore on redlock:fence:*. Readers need all of these and
//
//	+zscore +zremrangebyscore +exists
//
// on redlock:readers:* and redlock:intent:*. Optional on the keys of the locks, so that a release
// needs no script on the server, is one of
//
//	+delex (Redis 8.4 or later)    +delifeq (Valkey 9 or later)
//
// Other servers use the optional +mget, with which the releases of many callers are one script.
// Optional, so that waiters need not poll and losses are noticed at once, are
//
//	+client|tracking +client|caching +client|id +subscribe &__redis__:invalidate
//
// and +client|setname, which makes CLIENT LIST show the purpose of a connection.
//
// # Servers that fail over
//
// A node can be several servers with one primary at a time, as with Redis Sentinel. The URL names
// the other servers as standbys.
//
//	redis://10.0.0.1:6379?standby=10.0.0.11:6379
//
// The primary votes once all others have been seen as its replicas, so that no two of them vote at
// the same time. The memory guard treats it like a server that was restarted with old data. A
// client determines the primary on its own and does not ask Sentinel, which may have promoted one
// server while another still grants. Such a node needs INFO and ROLE, GET and SET on the key
// redlock:primary (without a prefix), and the memory guard. Each address must belong to one server,
// whatever its role, and the clocks of the servers must differ by less than a second.
// docs/OPERATING.md has the steps.
//
// A Sentinel is refused ([ErrSentinel]), and so is a node of a Redis Cluster with several shards
// ([ErrCluster]). The primary of a cluster of one shard has all keys, and is a server like any
// other; its keys in different slots are renewed one at a time. No error repeats the value of a
// lock, even if the server's own message does.
package pool
