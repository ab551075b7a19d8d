// Package pool speaks to Redis servers: each is a [redlock.Node] with one
// pipelined redigo connection.
//
// A quorum lock sends small requests to every server at the same time and must
// not wait for any one of them. A classic connection pool serves that badly: a
// goroutine and a connection for each of N requests, a system call for each
// command, and a connection thrown away with each timeout, with a request
// still in it that the server will run. Here one goroutine writes whatever is
// queued, in one system call, and one reads the replies. A caller that stops
// waiting costs nothing: its reply is still read, and still counted.
//
// All requests to a node travel on one connection, in order, so that a release
// can never overtake the SET that it undoes. When the connection breaks, the
// next one first kills the old one on the server (CLIENT KILL ID), which may
// still have requests in its buffer, and then sends the releases that were not
// confirmed.
//
// While somebody waits for a lock, a node has a second connection, on which the
// server tells that the lock may be free (CLIENT TRACKING, as for client-side
// caching). A server that does not offer this is as safe, and is polled.
//
// The redis servers needed are version 6 or later (or Valkey), primaries, and
// independent of each other. An ACL user needs
//
//	+set +eval +evalsha +script|load +get +del +pexpire +pttl +time
//
// on the keys of the locks and on redlock:* (each behind the prefix, if there
// is one), +select where the URL names a database, and should have +role,
// +info, +client|id and +client|kill, without which replicas, restarts with old
// data and connections that are still open behind our back are not noticed: see
// [Log]. Those who wait in turn need
//
//	+zadd +zrem +zrange +zrank +hset +hget +hdel
//
// on the queues' keys as well. Optional, so that those who wait need not poll, are
//
//	+client|tracking +client|caching +client|id +subscribe &__redis__:invalidate
//
// and +client|setname, which lets CLIENT LIST show what a connection is for.
package pool
