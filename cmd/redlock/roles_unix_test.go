//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func init() {
	roles = map[string]func() int{"hold": holdOracle, "append": appendToFile, "deaf": deaf, "brief": briefly, "listen": listen, "leave": leave, "leave-deaf": leaveDeaf}
}

// oracle is a lock of the operating system's: taken while the process lives, free
// when it is dead, and no clock or network has any part in it.
func oracle(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	return f, syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}

// holdOracle holds it, says so, and ends only when it is killed; so does a
// process that it starts, which shares the oracle.
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
	deaf.Wait()
	return 0
}

// deaf does not hear SIGTERM, says when it is that far, and lives for longer than
// any test.
func deaf() int {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("held")
	time.Sleep(2 * time.Minute) // a test that fails must not leave it for ever
	return 0
}

// leave leaves the process group that it was started in, as timeout(1) does, and
// says so.
func leave() int {
	if err := syscall.Setpgid(0, 0); err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println("held")
	time.Sleep(2 * endless) // or nobody would end it if redlock cannot
	return 0
}

func leaveDeaf() int {
	signal.Ignore(syscall.SIGTERM)
	return leave()
}

var untilDeath *os.File // not to be closed by the garbage collector

// listen ends when it gets a signal, and says which it was. A shell that looks at its traps
// and then waits misses what comes in between.
func listen() int {
	got := make(chan os.Signal, 1)
	signal.Notify(got)
	signal.Ignore(syscall.SIGURG) // Go's own
	fmt.Println("ready")
	for s := range got {
		if s != syscall.SIGCONT {
			fmt.Println("got " + s.String())
			return 5
		}
	}
	return 1
}

// briefly holds the oracle for as long as it takes to say so. It does not close it:
// who finds it free must find the process dead.
func briefly() int {
	f, err := oracle(os.Getenv("REDLOCK_TEST_FILE"))
	if err != nil {
		return 1
	}
	untilDeath = f
	fmt.Println("held")
	return 0
}

// appendToFile adds a line to a file by reading all and writing all: who does so
// at the same time as another loses a line.
func appendToFile() int {
	path := os.Getenv("REDLOCK_TEST_FILE")
	text, err := os.ReadFile(path)
	if err != nil {
		return 1
	}
	lines := 0
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		lines++
	}
	text = fmt.Appendf(text, "%d %s\n", lines, os.Getenv("REDLOCK_FENCE"))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return 1
	}
	return 0
}

// readLines returns what appendToFile has written: line numbers and tokens.
func readLines(path string) (numbers, tokens []int64, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	for line := range strings.Lines(string(text)) {
		number, token, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, nil, err
		}
		f, err := strconv.ParseInt(token, 10, 64)
		if err != nil {
			return nil, nil, err
		}
		numbers, tokens = append(numbers, n), append(tokens, f)
	}
	return numbers, tokens, nil
}
