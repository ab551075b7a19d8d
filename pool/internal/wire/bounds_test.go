package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fine are streams within the bounds: so many replies, and what cannot be read behind them.
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
	"a long line":      {2, "+" + strings.Repeat("x", MaxLine-3) + "\r\n:1\r\n"},
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

// outrageous are streams that are over the bounds after one good reply.
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
	"a line too long":                "+OK\r\n+" + strings.Repeat("x", MaxLine-2) + "\r\n",
	"a line without an end":          "+OK\r\n-" + strings.Repeat("x", MaxLine),
	"a length without an end":        "+OK\r\n$" + strings.Repeat("0", MaxLine),
	"a byte too much":                "+OK\r\n*4\r\n" + strings.Repeat(string(bulk(maxReply/4-12)), 3) + string(bulk(maxReply/4-12-3)),
}

// bulk returns a string of n bytes, of seven digits' length.
func bulk(n int) []byte {
	return fmt.Appendf(nil, "$%07d\r\n%s\r\n", n, bytes.Repeat([]byte("x"), n))
}

func TestRepliesWithinTheBoundsPassUnchanged(t *testing.T) {
	t.Parallel()
	for name, test := range fine {
		t.Run(name, func(t *testing.T) {
			for _, size := range sizes(test.stream) {
				replies, refused := compare(t, []byte(test.stream), steps(size))
				assert.False(t, refused)
				assert.Equal(t, test.replies, len(replies)) // Len would print them
			}
		})
	}
}

func TestRepliesBeyondTheBoundsAreRefused(t *testing.T) {
	t.Parallel()
	for name, stream := range outrageous {
		t.Run(name, func(t *testing.T) {
			for _, size := range sizes(stream) {
				replies, refused := compare(t, []byte(stream), steps(size))
				assert.True(t, refused)
				assert.Equal(t, 1, len(replies), "what came before is read")
			}
		})
	}
}

// sizes are those of the pieces that a stream is cut into.
func sizes(stream string) []int {
	if len(stream) > 1<<17 {
		return []int{1000, 4096, len(stream)}
	}
	return []int{1, 2, 3, 5, 4096, len(stream) + 1}
}

func TestBoundsCostNoAllocation(t *testing.T) {
	var b Bounds
	stream := []byte(fine["each type"].stream + fine["nil"].stream + fine["a hint"].stream)
	pass := func() {
		n, err := b.Pass(stream)
		if err != nil || n != len(stream) {
			t.Fatal(n, err)
		}
	}
	fewest := math.Inf(1)
	for range 10 { // what else the process does at the moment counts, too
		fewest = min(fewest, testing.AllocsPerRun(100, pass))
	}
	assert.Zero(t, fewest)
}

func BenchmarkBounds(b *testing.B) {
	var replies Bounds
	stream := []byte("+OK\r\n:86399999\r\n:1\r\n")
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		replies.Pass(stream)
	}
}

// FuzzBounds compares what redigo reads with and without the bounds.
func FuzzBounds(f *testing.F) {
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
	f.Add([]byte("$10000000A"), uint64(0)) // which judge once had wrong
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		lot := rand.New(rand.NewPCG(seed, 0))
		compare(t, stream, func() int { return 1 + lot.IntN(40) })
	})
}

// compare reads a stream through the bounds, in pieces, and requires what redigo reads without them.
// Where judge says that the stream is over the bounds, redigo gets only what comes before.
func compare(t *testing.T, stream []byte, size func() int) (replies []any, refused bool) {
	t.Helper()
	replies, err := readAll(&bounded{Conn: &pieces{left: stream, size: size}})
	refused = errors.Is(err, ErrReplyTooLarge)
	good, says := judge(stream)
	require.Equal(t, says == tooLarge, refused, "%s: %v", says, err)
	if refused {
		stream = stream[:good]
	}
	want, _ := readAll(&pieces{left: stream, size: steps(1 << 20)})
	require.True(t, reflect.DeepEqual(want, replies), "%d replies, %d without the bounds", len(replies), len(want))
	return replies, refused
}

// readAll returns the replies that redigo reads, and why it ends.
func readAll(c net.Conn) (replies []any, err error) {
	conn := redis.NewConn(c, 0, 0)
	for {
		v, err := conn.Receive()
		if failure, isReply := err.(redis.Error); isReply {
			v, err = failure, nil
		}
		if err != nil {
			return replies, err
		}
		replies = append(replies, v)
	}
}

// The verdicts of judge on a reply that is not whole.
const (
	cutOff   = "cut off"
	tooLarge = "tooLarge" // it is over the bounds
	nonsense = "nonsense"
)

var sensible = regexp.MustCompile(`(?s)^([+-].*|:-?\d+|[$*](\d+|-1))$`)

// judge finds how many bytes of a stream are whole replies within the bounds, and says what comes
// behind them. It has the whole stream before it, and shares nothing with what it judges.
func judge(stream []byte) (good int, says string) {
	for {
		elements := 0
		end, says := judgeReply(stream, good, 0, &elements)
		if says == "" && end-good > maxReply {
			says = tooLarge
		}
		if says != "" {
			return good, says
		}
		good = end
	}
}

func judgeReply(stream []byte, at, depth int, elements *int) (end int, says string) {
	line, _, whole := bytes.Cut(stream[at:], []byte("\n"))
	end = at + len(line) + 1
	text, returned := bytes.CutSuffix(line, []byte("\r"))
	if len(line) > 0 && strings.IndexByte("+-:$*", line[0]) < 0 {
		return 0, nonsense
	}
	header := len(text) > 0 && strings.IndexByte("$*", text[0]) >= 0
	number := 0
	if header {
		length := string(text[1:])
		digits := length[:len(length)-len(strings.TrimLeft(length, "0123456789"))]
		limit := maxString
		if text[0] == '*' {
			limit = maxElements - *elements
		}
		var err error
		if number, err = strconv.Atoi("0" + digits); err != nil || number > limit || len(digits) >= MaxLine {
			return 0, tooLarge
		}
	} else if len(line) > MaxLine || whole && len(line) == MaxLine {
		return 0, tooLarge
	}
	switch {
	case !whole:
		return 0, cutOff
	case !returned || !sensible.Match(text):
		return 0, nonsense
	case !header || text[1] == '-':
		return end, ""
	case text[0] == '$':
		rest := stream[end:]
		if len(rest) < number+2 {
			return 0, cutOff
		}
		if string(rest[number:number+2]) != "\r\n" {
			return 0, nonsense
		}
		return end + number + 2, ""
	}
	if *elements += number; number > 0 && depth == maxNesting {
		return 0, tooLarge
	}
	for range number {
		if end, says = judgeReply(stream, end, depth+1, elements); says != "" {
			return 0, says
		}
	}
	return end, ""
}

// A bounded connection passes what the bounds let pass.
type bounded struct {
	net.Conn
	Bounds
}

func (c *bounded) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if passed, refused := c.Pass(p[:n]); refused != nil {
		return passed, refused
	}
	return n, err
}

// pieces is a connection on which a stream comes in pieces, and then ends.
type pieces struct {
	net.Conn
	left []byte
	size func() int // of the next piece
}

func steps(size int) func() int { return func() int { return size } }

func (c *pieces) Read(p []byte) (int, error) {
	if len(c.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.size())], c.left)
	c.left = c.left[n:]
	return n, nil
}

func (*pieces) SetReadDeadline(time.Time) error { return nil }
func (*pieces) Close() error                    { return nil }
