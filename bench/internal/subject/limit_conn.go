package subject

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/gomodule/redigo/redis"
)

const limitScript = `if redis.call("GET",KEYS[1])==ARGV[1] then return redis.call("DEL",KEYS[1]) else return 0 end`

var limitScriptSHA = func() string {
	sum := sha1.Sum([]byte(limitScript))
	return hex.EncodeToString(sum[:])
}()

// A limitConn is a raw connection to one server. Its run's mu protects the rest.
type limitConn struct {
	net.Conn
	address    string
	out, spare []byte // requests to be written, and the buffer of those being written
	writing    bool
	asked      limitQueue // requests without an answer, in order
}

// limitConnect leaves to redigo what happens once a connection.
func limitConnect(ctx context.Context, t *target) (*limitConn, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	conn.SetDeadline(deadline)
	r := redis.NewConn(conn, 0, 0)
	do := func(command string, args ...any) {
		if err == nil {
			_, err = redis.DoContext(r, ctx, command, args...)
		}
	}
	if t.password != "" {
		args := []any{t.user, t.password}
		if t.user == "" {
			args = args[1:]
		}
		do("AUTH", args...)
	}
	if t.database != 0 {
		do("SELECT", t.database)
	}
	do("SCRIPT", "LOAD", limitScript)
	if err != nil {
		conn.Close()
		return nil, err
	}
	conn.SetDeadline(time.Time{})
	return &limitConn{Conn: conn, address: t.address}, nil
}

// A limitCycle is what is to be reported.
type limitCycle struct {
	slot             int
	began            time.Time
	acquire, release time.Duration
}

// read takes the connection's answers until the run has ended.
func (l *limitRun) read(c *limitConn) error {
	in, held := make([]byte, 64<<10), 0
	var cycles []limitCycle
	for {
		n, err := c.Read(in[held:])
		if err != nil {
			return err
		}
		now := time.Now()
		on, over := false, false
		rest := in[:held+n]
		l.mu.Lock()
		for err == nil {
			length, yes, bad := limitAnswer(rest)
			if length == 0 {
				err = bad
				break
			}
			rest = rest[length:]
			asked, ok := c.asked.pop()
			if !ok {
				err = errors.New("an answer that nobody asked for")
				break
			}
			var more bool
			cycles, more, err = l.answer(asked, yes, now, cycles)
			on = on || more
		}
		if len(c.asked.ring) > limitBacklog {
			err = fmt.Errorf("it is %d answers behind the others", c.asked.len())
		}
		if l.left == 0 {
			over = c.asked.len() == 0
			l.wakeIdle()
		}
		l.mu.Unlock()
		if err != nil {
			return err
		}
		held = copy(in, rest)
		if on {
			l.flush()
		}
		for _, cy := range cycles {
			l.driven.Cycle(cy.slot, cy.began, cy.acquire, cy.release)
		}
		cycles = cycles[:0]
		if over {
			return nil
		}
	}
}

// wakeIdle ends the reads of connections from which nothing will come any more.
func (l *limitRun) wakeIdle() {
	for _, c := range l.conns {
		if c.asked.len() == 0 {
			c.SetReadDeadline(time.Now())
		}
	}
}

// limitRequest is a command as Redis reads it.
func limitRequest(args ...string) []byte {
	b := append([]byte("*"+strconv.Itoa(len(args))), "\r\n"...)
	for _, a := range args {
		b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
	}
	return b
}

// limitAnswer reads one of the answers that can come, each of which is a line, and
// returns its length, or zero if it is not complete.
func limitAnswer(b []byte) (length int, yes bool, err error) {
	end := bytes.IndexByte(b, '\n')
	if end < 1 {
		return 0, false, nil
	}
	switch line := b[:end-1]; string(line) {
	case "+OK", ":1":
		return end + 1, true, nil
	case "$-1", ":0":
		return end + 1, false, nil
	default:
		return 0, false, fmt.Errorf("it answers %q", line)
	}
}
