package main

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// commandEnv makes the test binary be the command: what is to be killed, stopped
// and given a terminal must be a process.
const commandEnv = "REDLOCK_TEST_COMMAND"

// roleEnv makes it be what the command runs under a lock.
const roleEnv = "REDLOCK_TEST_ROLE"

var roles map[string]func() int // by what roleEnv says

func TestMain(m *testing.M) {
	if os.Getenv(commandEnv) != "" {
		os.Unsetenv(commandEnv) // which is not for what it runs
		main()
	}
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(roles[role]())
	}
	goleak.VerifyTestMain(m)
}
