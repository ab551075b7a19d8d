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
// The redis servers needed are version 3.2 or later (or Valkey), primaries, and
// independent of each other. An ACL user needs
//
//	+set +eval +evalsha +script|load +get +del +pexpire +pttl
//
// on the keys, +select where the URL names a database, and should have +role,
// +info, +client|id and +client|kill, without which replicas are not noticed and
// old connections not killed. CLIENT ID came with Redis 5.
package pool
