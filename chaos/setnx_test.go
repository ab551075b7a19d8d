package main

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gomodule/redigo/redis"
)

// setNXEnv makes the test binary a program that locks by SET NX PX on one server. Its value says how
// that releases.
const setNXEnv = "CHAOS_TEST_SETNX"

// setNX are the arguments with which clients have their locks from such a program.
func setNX(release string) []string {
	command := fmt.Sprintf("%s=%s exec '%s'", setNXEnv, release, os.Args[0])
	return []string{"--ttl", "300ms", "--nodes", "1", "--clients", "6", "--client", command}
}

// A setNXLock is a lock that is held until a deadline.
type setNXLock struct {
	conn        redis.Conn
	ttl         int // ms
	name, value string
	until       time.Time
}

func serveSetNX(compares bool, in io.Reader, out io.Writer) (err error) {
	var l setNXLock
	for requests := bufio.NewScanner(in); requests.Scan(); {
		var request, first, second string
		fmt.Sscan(requests.Text(), &request, &first, &second)
		answer := "released"
		switch request {
		case "open":
			fmt.Sscan(first, &l.ttl)
			l.conn, err = redis.Dial("tcp", second)
			answer = "ready - SET NX PX of a test"
		case "acquire":
			answer, err = l.acquire(first, second)
		case "held":
			answer = "lost at its deadline"
			if left := time.Until(l.until).Milliseconds(); left > 0 {
				answer = fmt.Sprint("held ", left)
			}
		case "release":
			script := `if ARGV[2] == "true" and redis.call("get", KEYS[1]) ~= ARGV[1] then return 0 end return redis.call("del", KEYS[1])`
			_, err = l.conn.Do("EVAL", script, 1, l.name, l.value, fmt.Sprint(compares))
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(out, answer)
	}
	return nil
}

func (l *setNXLock) acquire(name, wait string) (string, error) {
	patience, err := time.ParseDuration(wait + "ms")
	if err != nil {
		return "", err
	}
	l.name, l.value = name, rand.Text()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		began := time.Now()
		reply, err := l.conn.Do("SET", name, l.value, "NX", "PX", l.ttl)
		if err != nil {
			return "", err
		}
		if reply != nil {
			l.until = began.Add(time.Duration(l.ttl) * time.Millisecond)
			return "granted", nil
		}
	}
	return "failed held", nil
}
