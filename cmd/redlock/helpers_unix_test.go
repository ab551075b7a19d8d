//go:build unix

package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	tr "github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/testenv"
)

// five starts five real servers. Their clients use them without the memory guard.
func five(t *testing.T) fleet.Fleet {
	t.Helper()
	testenv.NeedRedis(t)
	f, err := fleet.Start(t.Context(), fleet.Process, fleet.Options{Volatile: true})
	tr.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func init() {
	roles = map[string]func() int{"hold": holdOracle, "spin": spin, "deaf": deaf, "brief": briefly, "listen": listen, "root": becomeRoot}
}

// becomeRoot becomes root in a program that is setuid, as sudo does, and ends with its standard input.
func becomeRoot() int {
	if err := syscall.Setuid(0); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	return 0
}

// oracle takes a lock of the operating system's. It is held while the process lives, and free when
// the process is dead, regardless of clocks and the network.
func oracle(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return f, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// holdOracle holds the oracle, prints that, and ends only when it is killed. It starts a process
// that shares the oracle and also ends only when it is killed. As a sign of life it writes the time
// into the file.
func holdOracle() int {
	f, err := oracle(os.Getenv("REDLOCK_TEST_FILE"))
	if err != nil {
		fmt.Println("taken:", err)
		return 1
	}
	deaf := exec.Command("/proc/self/exe")
	deaf.Env = append(os.Environ(), roleEnv+"=deaf")
	deaf.ExtraFiles = []*os.File{f}
	deaf.Stdout = os.Stdout
	if err := deaf.Start(); err != nil {
		fmt.Println(err)
		return 1
	}
	signal.Ignore(syscall.SIGTERM)
	for began := time.Now(); time.Since(began) < 2*endless; time.Sleep(2 * time.Millisecond) { // limited, in case the test fails
		f.WriteAt(time.Now().AppendFormat(nil, signLayout), 0)
	}
	return 0
}

// signLayout is how holdOracle writes the time: all times have the same number of bytes, so each
// replaces the last one.
const signLayout = "2006-01-02T15:04:05.000000Z07:00"

// lastSign returns the time of the last sign of life.
func lastSign(t *testing.T, path string) time.Time {
	t.Helper()
	text, err := os.ReadFile(path)
	tr.NoError(t, err)
	last, err := time.Parse(signLayout, string(text))
	tr.NoError(t, err)
	return last
}

// spin keeps a processor busy.
func spin() int {
	for began := time.Now(); time.Since(began) < 2*endless; { // limited, in case the test fails
	}
	return 0
}

// deaf ignores SIGTERM, prints a line once it does, and lives longer than any test.
func deaf() int {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("held")
	time.Sleep(2 * endless) // limited, in case the test fails
	return 0
}

var untilDeath *os.File // a global, so that the garbage collector does not close the file

// listen ends when it gets a signal, and prints the signal. It is not a shell, because a shell that
// checks its traps and then waits misses a signal in between.
func listen() int {
	got := make(chan os.Signal, 16) // one of Go's own signals must not replace the expected one
	signal.Notify(got)
	signal.Ignore(syscall.SIGURG)
	fmt.Println("ready")
	for s := range got {
		if s != syscall.SIGCONT {
			fmt.Println("got " + s.String())
			return 5
		}
	}
	return 1
}

// briefly takes the oracle, prints that, and ends. It does not close the oracle, so the process is
// dead when the oracle is free.
func briefly() int {
	f, err := oracle(os.Getenv("REDLOCK_TEST_FILE"))
	if err != nil {
		return 1
	}
	untilDeath = f
	fmt.Println("held")
	return 0
}
