package main

import (
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	tr "github.com/stretchr/testify/require"
	"golang.org/x/sys/windows"

	"github.com/redquorum/redquorum/internal/fleet"
)

// five starts five servers in this process, because there is no redis-server for Windows.
func five(t *testing.T) fleet.Fleet {
	t.Helper()
	f, err := fleet.Start(t.Context(), fleet.Embedded, fleet.Options{Volatile: true})
	tr.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func init() {
	roles = map[string]func() int{"hold": holdOracle, "deaf": deaf, "listen": listen, "leave": leave, "echo": echo}
}

// oracle opens a file that no other process can open. The file is free when all processes that have
// it are dead, regardless of clocks and the network.
func oracle(path string) (windows.Handle, error) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	return windows.CreateFile(name, windows.GENERIC_WRITE, 0, nil, windows.OPEN_ALWAYS, 0, 0)
}

// startDeaf starts a process that shares an oracle, has a process group of its own, and does not end by
// itself.
func startDeaf(file windows.Handle) error {
	path, err := os.Executable()
	if err != nil {
		return err
	}
	if err := windows.SetHandleInformation(file, windows.HANDLE_FLAG_INHERIT, windows.HANDLE_FLAG_INHERIT); err != nil {
		return err
	}
	cmd := exec.Command(path)
	cmd.Env = append(os.Environ(), roleEnv+"=deaf")
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_NEW_PROCESS_GROUP, AdditionalInheritedHandles: []syscall.Handle{syscall.Handle(file)}}
	return cmd.Start()
}

// holdOracle holds the oracle until it is killed. It starts a process that does the same.
func holdOracle() int {
	if code := leave(); code != 0 {
		return code
	}
	return sleep()
}

// leave starts a process that inherits the oracle, and returns.
func leave() int {
	file, err := oracle(os.Getenv("REDLOCK_TEST_FILE"))
	if err == nil {
		err = startDeaf(file)
	}
	if err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// deaf survives Ctrl-Break, and prints a line once it does.
func deaf() int {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	fmt.Println("held")
	return sleep()
}

func sleep() int {
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	time.Sleep(2 * endless) // limited, in case the test fails
	return 0
}

// listen ends when it gets a Ctrl-Break.
func listen() int {
	got := make(chan os.Signal, 1)
	signal.Notify(got, os.Interrupt)
	fmt.Println("ready")
	<-got
	fmt.Println("got Ctrl-Break")
	return 5
}

// echo prints the environment of the command, and ends with an exit code larger than any on Unix.
func echo() int {
	var line string
	fmt.Scanln(&line)
	fmt.Println(line, os.Getenv("REDLOCK_NAME"), os.Args[1:])
	return 70_007
}
