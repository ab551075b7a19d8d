package testenv

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// outcome is a testing.TB that records the outcome of a test.
type outcome struct {
	testing.TB
	ended string
}

func (o *outcome) Helper()               {}
func (o *outcome) Fatal(...any)          { o.ended = "failed" }
func (o *outcome) Fatalf(string, ...any) { o.ended = "failed" }
func (o *outcome) Skipf(string, ...any)  { o.ended = "skipped" }

func TestMissingSkipsUnlessRequired(t *testing.T) {
	missing := errors.New("not installed")
	for _, c := range []struct {
		env     string
		missing error
		want    string
	}{
		{"", nil, ""},
		{"", missing, "skipped"},
		{"redis", missing, "skipped"},
		{"docker", missing, "failed"},
		{"redis, docker", missing, "failed"},
		{"docker,", nil, ""},
		{"dokcer", nil, "failed"},
	} {
		t.Setenv(env, c.env)
		o := &outcome{TB: t}
		skipOrFail(o, docker, c.missing)
		assert.Equal(t, c.want, o.ended, "%s=%q, missing: %v", env, c.env, c.missing)
	}
}

func TestContainersRunOnlyOnRequest(t *testing.T) {
	for _, c := range []struct {
		require, long string
		skipped       bool
	}{
		{"", "", true},
		{"redis", "", true},
		{"", "1", testing.Short()},
		{"redis,docker", "", testing.Short()},
	} {
		t.Setenv(env, c.require)
		t.Setenv(LongEnv, c.long)
		assert.Equal(t, c.skipped, !Containers(), "%s=%q, %s=%q", env, c.require, LongEnv, c.long)
	}
}
