package register_test

import (
	"bytes"
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
	one, err := register.Dial(server.Addr())
	require.NoError(t, err)
	defer one.Close()
	two, err := register.Dial(server.Addr())
	require.NoError(t, err)
	defer two.Close()

	for _, w := range []struct {
		by    *register.Client
		name  string
		token int64
		want  bool
	}{
		{one, "a", 10, true}, {one, "a", 10, true}, {two, "a", 11, true}, {one, "a", 10, false},
		{one, "b", 10, true}, {two, "a", 11, true}, {one, "a", 12, true}, {two, "a", 11, false},
	} {
		got, err := w.by.Write(w.name, w.token, 3, 4)
		require.NoError(t, err)
		assert.Equal(t, w.want, got, "%+v", w)
	}

	server.Close()
	var kinds []history.Kind
	require.NoError(t, history.Read(&record, func(e history.Event) {
		kinds = append(kinds, e.Kind)
		assert.Equal(t, history.Key{Who: 3, Op: 4}, history.Key{Who: e.Who, Op: e.Op})
	}))
	const yes, no = history.Accepted, history.Refused
	assert.Equal(t, []history.Kind{yes, yes, yes, no, yes, yes, yes, no}, kinds)

	_, err = one.Write("a", 99, 1, 1)
	assert.Error(t, err, "the register is closed")
}
