package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(perform(role))
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if dir, err := built(); err == nil {
			os.RemoveAll(filepath.Dir(dir))
		}
		os.Exit(code)
	}))
}

// built is the command as users have it. What is to be killed, stopped and given a
// terminal must be a process.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "redlock-test-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "redlock")
	if out, err := exec.Command("go", "build", "-o", path, ".").CombinedOutput(); err != nil {
		return path, fmt.Errorf("go build: %w: %s", err, out)
	}
	return path, nil
})
