package wire

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/gomodule/redigo/redis"
)

// The limits of one reply. A reader allocates the size in the header of a string or an array, reads
// a line to its end, and calls itself for an array within an array. Without limits, one server of
// five could crash every client's process by a header of a few bytes. redigo's reader is unlimited.
//
// The largest replies that this module requests are those to INFO (about 10 KB), to the SCAN of
// redlock status (about 500 keys of at most 1 KiB), and to an Inspect that reads another client's
// value. They are at most two arrays deep.
const (
	maxLine     = 1 << 14 // bytes of a status, an error, a number or a header, including its end
	maxString   = 1 << 20 // bytes of a bulk string
	maxElements = 1 << 16 // elements of all arrays of a reply together, 16 bytes each
	maxNesting  = 16      // arrays within arrays
	maxReply    = 1 << 22 // bytes, received or announced
)

// Replies reads a stream of RESP2 replies
// (https://redis.io/docs/latest/develop/reference/protocol-spec/), and limits each of them.
type Replies struct {
	stream   *bufio.Reader
	bytes    int // bytes left for this reply
	elements int // elements left for this reply
	failed   error
}

// NewReplies returns the replies of a stream.
func NewReplies(stream io.Reader) *Replies {
	return &Replies{stream: bufio.NewReaderSize(stream, maxLine)}
}

// IsTLS reports whether a server speaks TLS, by the next byte that it sends.
func (r *Replies) IsTLS() bool {
	const alert, handshake = 0x15, 0x16
	first, err := r.stream.Peek(1)
	return err == nil && (first[0] == alert || first[0] == handshake)
}

// Next returns the next reply, in redigo's types for replies. A server's error reply is such a
// reply. After any other error, all further calls return that error.
func (r *Replies) Next() (reply any, err error) {
	if r.failed != nil {
		return nil, r.failed
	}
	r.bytes, r.elements = maxReply, maxElements
	reply, r.failed = r.read(maxNesting)
	return reply, r.failed
}

// read reads a reply, or an element of one, with at most this depth of arrays.
func (r *Replies) read(nesting int) (any, error) {
	line, err := r.line()
	if err != nil {
		return nil, err
	}
	switch text := line[1:]; line[0] {
	case '+':
		if string(text) == "OK" {
			return "OK", nil // a constant, which costs no memory
		}
		return string(text), nil
	case '-':
		return redis.Error(text), nil
	case ':':
		return number(text)
	case '$':
		return r.bulk(text)
	case '*':
		return r.array(text, nesting)
	}
	return nil, fmt.Errorf("%w: it begins with %q", ErrUnexpected, line[0])
}

// line reads a line, which is valid until the next read. It has at least one byte.
func (r *Replies) line() ([]byte, error) {
	line, err := r.stream.ReadSlice('\n')
	n := len(line) - len("\r\n")
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrReplyTooLarge, maxLine)
	case err != nil:
		return nil, err
	case n < 1 || line[n] != '\r':
		return nil, fmt.Errorf("%w: a line %.20q", ErrUnexpected, line)
	}
	return line[:n], r.take(len(line))
}

// take counts bytes that were received or announced.
func (r *Replies) take(n int) error {
	if r.bytes -= n; r.bytes < 0 {
		return fmt.Errorf("%w: more than %d bytes", ErrReplyTooLarge, maxReply)
	}
	return nil
}

// length reads the length in a header, and rejects a length above most; -1 means nil.
func length(text []byte, most int, of string) (int, error) {
	n, err := number(text)
	switch {
	case errors.Is(err, strconv.ErrRange) || n > int64(most):
		return 0, fmt.Errorf("%w: more than %d %s", ErrReplyTooLarge, most, of)
	case err == nil && n < -1:
		err = fmt.Errorf("%w: a length of %d", ErrUnexpected, n)
	}
	return int(n), err
}

func number(text []byte) (int64, error) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnexpected, err)
	}
	return n, nil
}

func (r *Replies) bulk(header []byte) (any, error) {
	n, err := length(header, maxString, "bytes of a string")
	if err != nil || n < 0 {
		return nil, err
	}
	if err := r.take(n + len("\r\n")); err != nil {
		return nil, err
	}
	text := make([]byte, n+len("\r\n"))
	if _, err := io.ReadFull(r.stream, text); err != nil {
		return nil, err
	}
	if string(text[n:]) != "\r\n" {
		return nil, fmt.Errorf("%w: %q where a string ends", ErrUnexpected, text[n:])
	}
	return text[:n:n], nil
}

func (r *Replies) array(header []byte, nesting int) (any, error) {
	n, err := length(header, r.elements, "elements")
	switch {
	case err != nil || n < 0:
		return nil, err
	case n > 0 && nesting == 0:
		return nil, fmt.Errorf("%w: more than %d arrays within each other", ErrReplyTooLarge, maxNesting)
	}
	r.elements -= n
	list := make([]any, n)
	for i := range list {
		if list[i], err = r.read(nesting - 1); err != nil {
			return nil, err
		}
	}
	return list, nil
}
