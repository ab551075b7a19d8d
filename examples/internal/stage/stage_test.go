package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ping(raw string) error { return pingFor(raw, 30*time.Second) }

func pingFor(raw string, limit time.Duration) error {
	c, err := redis.DialURL(raw, redis.DialConnectTimeout(30*time.Second), redis.DialReadTimeout(limit))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Do("PING")
	return err
}

func TestStoryGetsServersAndItsErrorIsReturned(t *testing.T) {
	t.Parallel()
	wrong := errors.New("it did not happen")
	var out strings.Builder
	err := run(t.Context(), &out, "", func(_ context.Context, out io.Writer, urls []string) error {
		assert.Len(t, urls, 5)
		for _, u := range urls {
			assert.NoError(t, ping(u))
		}
		fmt.Fprint(out, "once upon a time")
		return wrong
	})
	require.ErrorIs(t, err, wrong)
	assert.Equal(t, "once upon a time", out.String())
}

func TestGivenServersAreUsed(t *testing.T) {
	t.Parallel()
	urls, stop, err := start(t.Context(), "")
	require.NoError(t, err)
	defer stop()
	require.NoError(t, run(t.Context(), io.Discard, strings.Join(urls, ","), func(_ context.Context, _ io.Writer, given []string) error {
		assert.Equal(t, urls, given)
		return nil
	}))
	assert.NoError(t, ping(urls[0]), "their owner ends them")
}
