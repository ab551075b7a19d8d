package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestUsage(t *testing.T) {
	for _, test := range []struct {
		args []string
		code int
		out  string // on standard output where the code is 0, else on standard error
	}{
		{nil, exitUsage, "Usage:"},
		{[]string{"help"}, 0, "Usage:"},
		{[]string{"--help"}, 0, "Usage:"},
		{[]string{"--version"}, 0, "redlock version "},
		{[]string{"demo", "--help"}, 0, "--node"},
		{[]string{"demo", "--nodes", "redis://:hunter2@127.0.0.1:1"}, exitNoQuorum, "127.0.0.1:1"},
	} {
		code, out, errs := redlockCommand(t, test.args...)
		assert.Equal(t, test.code, code, test.args)
		if test.code != 0 {
			out = errs
		}
		assert.Contains(t, out, test.out, test.args)
		assert.NotContains(t, out+errs, "hunter2")
	}
}
