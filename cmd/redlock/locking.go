package main

import (
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// A locking has the settings of locks that must be the same for all clients of a lock.
type locking struct {
	cli         *cli
	prefix      string
	guard       bool
	maxTTL      time.Duration
	nodeTimeout time.Duration
}

func (l *locking) addFlags(c *cli) {
	l.cli = c
	f := c.flags
	f.StringVar(&l.prefix, "prefix", "", "`TEXT` before each name to make the key")
	f.BoolVar(&l.guard, "memory-guard", true, "give no vote to servers that may have forgotten locks")
	f.DurationVar(&l.maxTTL, "max-ttl", 0, "longest TTL that any client of the servers uses; a --ttl above 1h needs it (default: the longest that the servers have on record)")
	f.DurationVar(&l.nodeTimeout, "node-timeout", 0, "how long a vote waits for a majority of the servers (default: 500ms, or half the TTL if that is less)")
}

// options returns the options for package redlock.
func (l *locking) options() []redlock.LockerOption {
	opts := []redlock.LockerOption{redlock.Prefix(l.prefix), redlock.MemoryGuard(l.guard)}
	if l.maxTTL != 0 {
		opts = append(opts, redlock.MaxTTL(l.maxTTL))
	}
	if l.nodeTimeout != 0 {
		opts = append(opts, redlock.NodeTimeout(l.nodeTimeout))
	}
	return opts
}

// checkName refuses an invalid name before a server is asked.
func (l *locking) checkName(name string) error {
	switch {
	case name == "":
		return usageErrorf("the name of a lock must not be empty")
	case redlock.Reserved(l.prefix):
		return wrong(l.cli.flags, "prefix", "must not look like a key of redlock's own")
	case redlock.Reserved(l.prefix + name):
		return usageErrorf("%q is a key of redlock's own, not a lock", name)
	}
	return nil
}
