package wire

import (
	"bytes"
	"fmt"
)

// The bounds of one reply. redigo allocates what the header of a string or an array
// announces, grows a buffer for as long as a line goes on, and calls itself for an array within an
// array. Without bounds one server of five could end every client's process, by a header of a few
// bytes.
//
// The largest replies that this module asks for are those to INFO (some 10 KB), to the SCAN of
// redlock status (some 500 keys of at most 1 KiB), and to an Inspect that meets another client's
// value. They are at most two arrays deep.
const (
	MaxLine     = 1 << 14 // bytes of a status, an error, a number or a header, with its end
	maxString   = 1 << 20 // bytes of a bulk string
	maxElements = 1 << 16 // of all arrays of a reply together; redigo allocates 16 bytes for each
	maxNesting  = 16      // arrays within arrays
	maxReply    = 1 << 22 // bytes, as received or announced
)

// Bounds follows a stream of RESP2 replies
// (https://redis.io/docs/latest/develop/reference/protocol-spec/) wherever it is cut into pieces.
// Lengths are accepted only in the forms that redigo accepts, so that the two cannot take the same
// bytes for different replies. The zero value is at the beginning of a reply.
type Bounds struct {
	expects expectation
	kind    byte // of the line that is being read: its first byte
	line    int  // bytes of that line so far
	number  int  // the length that a header announces
	skip    int  // bytes of a bulk string that are still to come

	bytes    int             // of this reply so far
	elements int             // of this reply's arrays so far
	nesting  int             // arrays that are open
	open     [maxNesting]int // elements that each of them still lacks, the outermost first
}

// An expectation is what the next byte must be.
type expectation uint8

const (
	aReply       expectation = iota // its first byte
	restOfLine                      // of a status, an error or a number
	lengthBegins                    // a digit or a minus
	lengthIsNil                     // the 1 of -1
	lengthGoesOn                    // a digit or \r
	lengthEnds                      // the \r of -1
	lengthEnded                     // \n
	inString
	stringEnds  // \r
	stringEnded // \n
)

// Pass returns how many bytes of p may be read, and why not all of them.
func (b *Bounds) Pass(p []byte) (int, error) {
	for i := 0; i < len(p); {
		if b.expects == inString {
			n := min(b.skip, len(p)-i)
			if b.skip -= n; b.skip == 0 {
				b.expects = stringEnds
			}
			i += n
			continue
		}
		n, err := 1, error(nil)
		switch b.expects {
		case aReply:
			err = b.begin(p[i])
		case restOfLine:
			n, err = b.passLine(p[i:])
		default:
			err = b.passByte(p[i])
		}
		if b.bytes += n; b.bytes > maxReply && err == nil {
			err = fmt.Errorf("%w: more than %d bytes", ErrReplyTooLarge, maxReply)
		}
		if err != nil {
			return i, err
		}
		i += n
	}
	return len(p), nil
}

// begin takes the first byte of a reply, or of an element of one.
func (b *Bounds) begin(kind byte) error {
	if b.nesting == 0 {
		b.bytes, b.elements = 0, 0
	}
	b.kind, b.line, b.number = kind, 1, 0
	switch kind {
	case '+', '-', ':':
		b.expects = restOfLine
	case '$', '*':
		b.expects = lengthBegins
	default:
		return fmt.Errorf("%w: it begins with %q", ErrUnexpected, kind)
	}
	return nil
}

// passLine passes what p has of a line. Whether its text makes sense is left to redigo, which fails
// without reading on if it does not.
func (b *Bounds) passLine(p []byte) (int, error) {
	n := bytes.IndexByte(p, '\n') + 1
	ends := n > 0
	if !ends {
		n = len(p)
	}
	if b.line += n; b.line > MaxLine {
		return 0, fmt.Errorf("%w: a line of more than %d bytes", ErrReplyTooLarge, MaxLine)
	}
	if ends {
		b.end()
	}
	return n, nil
}

// passByte takes a byte of a header or of a string's end.
func (b *Bounds) passByte(c byte) error {
	digit := c >= '0' && c <= '9'
	switch e := b.expects; {
	case e == lengthBegins && c == '-':
		b.expects = lengthIsNil
	case e == lengthIsNil && c == '1':
		b.number, b.expects = -1, lengthEnds
	case (e == lengthBegins || e == lengthGoesOn) && digit:
		b.number, b.expects = 10*b.number+int(c-'0'), lengthGoesOn
		return b.announced()
	case (e == lengthGoesOn || e == lengthEnds) && c == '\r':
		b.expects = lengthEnded
	case e == lengthEnded && c == '\n':
		return b.enter()
	case e == stringEnds && c == '\r':
		b.expects = stringEnded
	case e == stringEnded && c == '\n':
		b.end()
	default:
		return fmt.Errorf("%w: %q where a length or a string ends", ErrUnexpected, c)
	}
	return nil
}

// announced refuses a length as soon as its digits are too many, so that it cannot overflow.
func (b *Bounds) announced() error {
	switch b.line++; {
	case b.line > MaxLine: // zeros
		return fmt.Errorf("%w: a length of more than %d digits", ErrReplyTooLarge, MaxLine)
	case b.kind == '$' && b.number > maxString:
		return fmt.Errorf("%w: a string of more than %d bytes", ErrReplyTooLarge, maxString)
	case b.kind == '*' && b.elements+b.number > maxElements:
		return fmt.Errorf("%w: more than %d elements", ErrReplyTooLarge, maxElements)
	}
	return nil
}

// enter takes the last byte of a header. What the header announces counts as if it had come,
// because redigo allocates it now.
func (b *Bounds) enter() error {
	switch {
	case b.number < 0 || b.kind == '*' && b.number == 0:
		b.end()
	case b.kind == '$':
		b.bytes += b.number
		b.skip, b.expects = b.number, inString
		if b.skip == 0 {
			b.expects = stringEnds
		}
	case b.nesting == maxNesting:
		return fmt.Errorf("%w: more than %d arrays within each other", ErrReplyTooLarge, maxNesting)
	default:
		b.elements += b.number
		b.open[b.nesting] = b.number
		b.nesting++
		b.expects = aReply
	}
	return nil
}

// end ends a reply or an element, and the arrays of which that is the last.
func (b *Bounds) end() {
	b.expects = aReply
	for b.nesting > 0 {
		last := &b.open[b.nesting-1]
		if *last--; *last > 0 {
			return
		}
		b.nesting--
	}
}
