package register_test

import (
	"bytes"
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/chaos/internal/history"
	"github.com/redquorum/redquorum/chaos/internal/register"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestOnlyTheHighestTokenWrites(t *testing.T) {
	t.Parallel()
	var record bytes.Buffer
	server, err := register.Serve(history.NewLog(&record))
	require.NoError(t, err)
	defer server.Close()
	defer http.DefaultClient.CloseIdleConnections()

	for _, w := range []struct {
		name  string
		token int64
	}{{"a", 10}, {"a", 10}, {"a", 11}, {"a", 10}, {"b", 10}, {"a", 11}, {"a", 12}, {"a", 11}} {
		require.NoError(t, register.Send(server.Addr, history.Event{Name: w.name, Token: w.token, Who: 3, Op: 4}))
	}

	server.Close()
	var kinds []history.Kind
	require.NoError(t, history.Read(&record, func(e history.Event) {
		kinds = append(kinds, e.Kind)
		assert.Equal(t, history.Key{Who: 3, Op: 4}, history.Key{Who: e.Who, Op: e.Op})
	}))
	const yes, no = history.Accepted, history.Refused
	assert.Equal(t, []history.Kind{yes, yes, yes, no, yes, yes, yes, no}, kinds)

	assert.Error(t, register.Send(server.Addr, history.Event{Name: "a", Token: 99}), "the register is closed")
}
