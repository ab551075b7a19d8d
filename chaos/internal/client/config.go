package client

import (
	"encoding/json"
	"os"
	"time"
)

// env tells the program that it is to be a client, and which.
const env = "REDQUORUM_CHAOS_CLIENT"

// A Config says what a client does.
type Config struct {
	Who      int // its number; every process has another one
	URLs     []string
	Register string // address
	Names    []string
	Seed     uint64
	TTL      time.Duration
	Guard    bool // MemoryGuard
	Callers  int  // goroutines

	// Work bounds how long a lock is held, drawn evenly.
	Work [2]time.Duration

	// Skew is how far this client's wall clock is ahead. Fencing tokens are
	// taken from it, and must not depend on it.
	Skew time.Duration
}

// FromEnv returns the configuration if this process was started to be a client.
func FromEnv() (c Config, is bool, err error) {
	text, is := os.LookupEnv(env)
	if !is {
		return c, false, nil
	}
	return c, true, json.Unmarshal([]byte(text), &c)
}

func (c Config) environ() (string, error) {
	text, err := json.Marshal(c)
	return env + "=" + string(text), err
}
