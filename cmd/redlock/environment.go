package main

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// environment is the command's: ours, with what it is told of its lock in the
// place of what we may have been told of ours.
func environment(lock *redlock.Lock, fenced bool) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return name == "REDLOCK_NAME" || name == "REDLOCK_FENCE" || name == "REDLOCK_UNTIL"
	})
	env = append(env,
		"REDLOCK_NAME="+lock.Name(),
		"REDLOCK_UNTIL="+lock.Until().UTC().Format(time.RFC3339Nano))
	if fenced {
		env = append(env, "REDLOCK_FENCE="+strconv.FormatInt(lock.Fence(), 10))
	}
	return env
}
