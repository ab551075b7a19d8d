package client_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/chaos/internal/client"
	"github.com/redquorum/redquorum/chaos/internal/history"
)

const limit = time.Minute

func TestMain(m *testing.M) {
	if is, err := client.Main(); is {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// lonely is a client without servers, so its requests fail.
func lonely(t *testing.T) client.Config {
	t.Helper()
	reg, err := client.ServeRegister(history.NewLog(io.Discard))
	require.NoError(t, err)
	t.Cleanup(func() { reg.Close() })
	return client.Config{
		Who: 3, URLs: []string{"redis://127.0.0.1:1"}, Register: reg.Addr, TTL: time.Second,
		Locks: []history.Lock{history.Fenced}, Names: []string{"a"}, Permits: "p",
	}
}

func TestEndOfAClientIsReported(t *testing.T) {
	t.Parallel()
	for says, end := range map[string]func(*client.Process) error{
		"client 3: exit status 1":           func(p *client.Process) error { return p.Stop(limit) },
		"client 3 did not end within 100ms": func(p *client.Process) error { return errors.Join(p.Pause(), p.Stop(100*time.Millisecond)) },
		"": func(p *client.Process) error { // Stop succeeds even if the process is paused or killed
			return errors.Join(p.Pause(), p.Resume(), p.Pause(), p.Kill(), p.Stop(limit))
		},
	} {
		c := lonely(t)
		if strings.Contains(says, "status") {
			c.URLs = nil
		}
		p, err := client.Start(c, history.NewLog(io.Discard), func() {})
		require.NoError(t, err)
		if err := end(p); says == "" {
			assert.NoError(t, err)
		} else {
			assert.ErrorContains(t, err, says)
		}
	}
}

func TestRegisterAcceptsTheHighestTokens(t *testing.T) {
	t.Parallel()
	var record bytes.Buffer
	register, err := client.ServeRegister(history.NewLog(&record))
	require.NoError(t, err)
	for _, token := range []int64{0, 0, 10, 10, 0, 11, 10, -1} {
		text, err := json.Marshal(history.Event{Name: "a", Token: token, Who: 3, Op: 4})
		require.NoError(t, err)
		reply, err := http.Post("http://"+register.Addr, "application/json", bytes.NewReader(text))
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
	}
	require.NoError(t, register.Close())
	const yes, no = history.Accepted, history.Refused
	var kinds []history.Kind
	require.NoError(t, history.Read(&record, func(e history.Event) {
		kinds = append(kinds, e.Kind)
		assert.Equal(t, history.Key{Who: 3, Op: 4}, history.Key{Who: e.Who, Op: e.Op})
	}))
	assert.Equal(t, []history.Kind{yes, yes, yes, yes, no, yes, no, no}, kinds)
}
