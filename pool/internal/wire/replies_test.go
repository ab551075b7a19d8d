package wire

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fine are streams within the limits: the number of replies, and the unreadable rest after them.
var fine = map[string]struct {
	replies int
	stream  string
}{
	"nothing":          {0, ""},
	"each type":        {5, "+OK\r\n-ERR no\r\n:-42\r\n$5\r\nhello\r\n*2\r\n:1\r\n$1\r\nx\r\n"},
	"nil":              {4, "$-1\r\n*-1\r\n*2\r\n$-1\r\n*-1\r\n:1\r\n"},
	"empty":            {5, "$0\r\n\r\n*0\r\n+\r\n*2\r\n*0\r\n$0\r\n\r\n:1\r\n"},
	"ends in a string": {2, "$8\r\n\r\n$9\r\n\r\n\r\n:1\r\n"},
	"zeros":            {2, "$00005\r\nhello\r\n:1\r\n"},
	"a return":         {2, "+a\rb\r\n:1\r\n"},
	"nested":           {2, strings.Repeat("*1\r\n", maxNesting) + ":1\r\n:2\r\n"},
	"a hint":           {1, "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n*1\r\n$1\r\nk\r\n"},
	"a long line":      {2, "+" + strings.Repeat("x", maxLine-3) + "\r\n:1\r\n"},
	"a long string":    {2, fmt.Sprintf("$%d\r\n%s\r\n:1\r\n", maxString, strings.Repeat("x", maxString))},
	"a long array":     {2, fmt.Sprintf("*%d\r\n%s:1\r\n", maxElements, strings.Repeat("+\r\n", maxElements))},
	"the most bytes":   {2, "*4\r\n" + strings.Repeat(string(bulk(maxReply/4-12)), 3) + string(bulk(maxReply/4-12-4)) + ":1\r\n"},
	"cut in a line":    {1, "+OK\r\n+O"},
	"cut in a length":  {1, "+OK\r\n$1"},
	"cut in a string":  {1, "+OK\r\n$10\r\nabc"},
	"cut in an end":    {1, "+OK\r\n$3\r\nabc\r"},
	"cut in an array":  {1, "+OK\r\n*3\r\n:1\r\n"},
	"no return":        {1, "+OK\r\n:1\n:2\r\n"},
	"not a number":     {1, "+OK\r\n:1x\r\n:2\r\n"},
	"not a type":       {1, "+OK\r\n%1\r\n"},
	"no type":          {1, "+OK\r\n\r\n"},
	"not a length":     {1, "+OK\r\n$x\r\n"},
	"no length":        {1, "+OK\r\n*\r\n"},
	"no string":        {1, "+OK\r\n$-2\r\n"},
	"nearly nil":       {1, "+OK\r\n*-11\r\n"},
	"a longer string":  {1, "+OK\r\n$3\r\nabcd\r\n"},
	"a shorter string": {1, "+OK\r\n$3\r\nab\r\n+OK\r\n"},
}

// outrageous are streams that exceed the limits after one valid reply.
var outrageous = map[string]string{
	"a string that makes make panic": "+OK\r\n$9223372036854775807\r\n",
	"a string of 100 TB":             "+OK\r\n$100000000000000\r\n",
	"a string of 8 GB":               "+OK\r\n$8002732032\r\n",
	"a string of a byte too much":    fmt.Sprintf("+OK\r\n$%d\r\n", maxString+1),
	"a length that overflows":        "+OK\r\n$18446744073709551621\r\nhello\r\n",
	"an array of 16 GB":              "+OK\r\n*1000000000\r\n",
	"an array that panics":           "+OK\r\n*9223372036854775807\r\n",
	"an element too much":            fmt.Sprintf("+OK\r\n*%d\r\n", maxElements+1),
	"an element too much in two":     fmt.Sprintf("+OK\r\n*2\r\n*%d\r\n", maxElements-1),
	"an array too deep":              "+OK\r\n" + strings.Repeat("*1\r\n", maxNesting+1),
	"a line too long":                "+OK\r\n+" + strings.Repeat("x", maxLine-2) + "\r\n",
	"a line without an end":          "+OK\r\n-" + strings.Repeat("x", maxLine),
	"a length without an end":        "+OK\r\n$" + strings.Repeat("0", maxLine),
	"a byte too much":                "+OK\r\n*4\r\n" + strings.Repeat(string(bulk(maxReply/4-12)), 3) + string(bulk(maxReply/4-12-3)),
}

// bulk returns a string of n bytes, where n has seven digits.
func bulk(n int) []byte {
	return fmt.Appendf(nil, "$%07d\r\n%s\r\n", n, bytes.Repeat([]byte("x"), n))
}

// TestRepliesWithinTheBoundsAreRead: the result is the same as redigo's, regardless of the pieces
// in which the stream arrives.
func TestRepliesWithinTheBoundsAreRead(t *testing.T) {
	t.Parallel()
	for name, test := range fine {
		t.Run(name, func(t *testing.T) {
			replies, err := readLikeRedigo(t, []byte(test.stream), 0)
			assert.NotErrorIs(t, err, ErrReplyTooLarge)
			assert.Equal(t, test.replies, len(replies)) // Len would print them
		})
	}
}

func TestRepliesBeyondTheBoundsAreRefused(t *testing.T) {
	t.Parallel()
	for name, stream := range outrageous {
		t.Run(name, func(t *testing.T) {
			replies, err := readLikeRedigo(t, []byte(stream), 0)
			assert.ErrorIs(t, err, ErrReplyTooLarge)
			assert.Equal(t, 1, len(replies), "what came before is read")
		})
	}
}

// TestRejectedReplyEndsTheStream: nothing is read after a rejected reply.
func TestRejectedReplyEndsTheStream(t *testing.T) {
	t.Parallel()
	r := NewReplies(strings.NewReader("*1000000000\r\n+OK\r\n"))
	for range 2 {
		_, err := r.Next()
		assert.ErrorIs(t, err, ErrReplyTooLarge)
	}
}

// lenient are forms of numbers that redigo does not read. No server sends them.
var lenient = regexp.MustCompile(`[:$*]\+|[$*]-0`)

func FuzzReplies(f *testing.F) {
	for _, test := range fine {
		if len(test.stream) < 1<<15 {
			f.Add([]byte(test.stream), uint64(1))
		}
	}
	for _, stream := range outrageous {
		if len(stream) < 1<<15 {
			f.Add([]byte(stream), uint64(1))
		}
	}
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		if !lenient.Match(stream) {
			readLikeRedigo(t, stream, seed)
		}
	})
}

// readLikeRedigo reads the stream in pieces that the seed determines. It requires the same replies
// from redigo, which gets only the bytes that were read without an error.
func readLikeRedigo(t *testing.T, stream []byte, seed uint64) (replies []any, err error) {
	t.Helper()
	lot := rand.New(rand.NewPCG(seed, 0))
	source := bytes.NewReader(stream)
	r := NewReplies(readerFunc(func(p []byte) (int, error) { return source.Read(p[:min(len(p), 1+lot.IntN(40))]) }))
	good := 0
	for {
		reply, failure := r.Next()
		if err = failure; err != nil {
			break
		}
		replies, good = append(replies, reply), len(stream)-source.Len()-r.stream.Buffered()
	}
	c := redis.NewConn(conn{Reader: bytes.NewReader(stream[:good])}, 0, 0)
	for i, reply := range replies {
		want, failure := c.Receive()
		if said, isReply := failure.(redis.Error); isReply {
			want, failure = said, nil
		}
		require.NoError(t, failure)
		require.True(t, assert.ObjectsAreEqual(want, reply), "reply %d", i)
	}
	_, end := c.Receive()
	require.ErrorIs(t, end, io.EOF, "redigo takes the bytes for more replies")
	return replies, err
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A conn is a connection that redigo reads from.
type conn struct {
	net.Conn
	io.Reader
}

func (c conn) Read(p []byte) (int, error)    { return c.Reader.Read(p) }
func (conn) SetReadDeadline(time.Time) error { return nil }
func (conn) Close() error                    { return nil }
