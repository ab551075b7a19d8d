package link

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/record"
	"github.com/redquorum/redquorum/pool/internal/wire"
)

// A scripted connection has all answers before the questions arrive.
type scripted struct {
	net.Conn
	io.Reader
	asked strings.Builder
}

func answering(answers string) (*Conn, *scripted) {
	s := &scripted{Reader: strings.NewReader(answers)}
	return NewConn(s), s
}

func (s *scripted) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s *scripted) Write(p []byte) (int, error) { return s.asked.Write(p) }
func (s *scripted) Close() error                { return nil }

// TestLastErrorOfAServerIsQuoted: the server has closed the connection. An expected refusal is not
// the reason for that.
func TestLastErrorOfAServerIsQuoted(t *testing.T) {
	t.Parallel()
	expected := Question{Name: "DELEX", Refused: func(redis.Error) {}}
	c, _ := answering("+OK\r\n-ERR max number of clients reached\r\n")
	assert.ErrorContains(t, Ask(t.Context(), c, Question{Name: "A"}, Question{Name: "B"}, Question{Name: "C"}), "max number of clients")
	c, _ = answering("+OK\r\n-ERR wrong number of arguments for 'delex' command\r\n")
	assert.ErrorIs(t, Ask(t.Context(), c, Question{Name: "A"}, expected, Question{Name: "C"}), io.EOF)
	assert.NoError(t, Ask(t.Context(), nil), "nothing is asked")
}

// TestPasswordIsNeverShown: the server's answer to it does not matter.
func TestPasswordIsNeverShown(t *testing.T) {
	t.Parallel()
	c, _ := answering("-ERR unknown command 'AUTH', with args beginning with: 'bob' 'hunter2'\r\n")
	err := Ask(t.Context(), c, Question{Name: "AUTH", Args: []any{"bob", "hunter2"}, Secret: true})
	assert.ErrorIs(t, err, wire.ErrAuth)
	assert.NotRegexp(t, "bob|hunter2", err.Error())
	err = Explain(redis.Error("ERR unknown command 'AUTH', with args beginning with: 'hunter2' "))
	assert.EqualError(t, err, wire.ErrUnsupported.Error()+" (ERR unknown command 'AUTH')", "of a caller's own dial function")
}

// TestBarrierIgnoresARestartedServer: an old connection that is gone causes no doubt, either.
func TestBarrierIgnoresARestartedServer(t *testing.T) {
	t.Parallel()
	const killed, gone, forbidden = ":1\r\n", ":0\r\n", "-NOPERM this user has no permissions\r\n"
	for name, test := range map[string]struct {
		now, old Server
		answer   string
		doubts   int
	}{
		"same process":       {Server{Server: record.Server{RunID: "a"}, clientID: 9}, Server{Server: record.Server{RunID: "a"}, clientID: 3}, killed, 0},
		"gone":               {Server{Server: record.Server{RunID: "a"}, clientID: 9}, Server{Server: record.Server{RunID: "a"}, clientID: 3}, gone, 0},
		"forbidden":          {Server{Server: record.Server{RunID: "a"}, clientID: 9}, Server{Server: record.Server{RunID: "a"}, clientID: 3}, forbidden, 1},
		"other process":      {Server{Server: record.Server{RunID: "b"}, clientID: 9}, Server{Server: record.Server{RunID: "a"}, clientID: 3}, "", 0},
		"run_id unknown":     {Server{Server: record.Server{RunID: ""}, clientID: 9}, Server{Server: record.Server{RunID: ""}, clientID: 3}, "", 0},
		"first connection":   {Server{Server: record.Server{RunID: "a"}, clientID: 9}, Server{}, "", 0},
		"old number unknown": {Server{Server: record.Server{RunID: "a"}, clientID: 9}, Server{Server: record.Server{RunID: "a"}, clientID: 0}, "", 0},
	} {
		c, s := answering(test.answer)
		doubts, err := barrier(t.Context(), c, test.now, test.old)
		require.NoError(t, err, name)
		assert.Len(t, doubts, test.doubts, name)
		assert.Equal(t, test.answer != "", strings.Contains(s.asked.String(), "KILL"), name)
	}
}
