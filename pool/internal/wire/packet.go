package wire

import (
	"bytes"
	"strconv"
)

// A Packet holds commands in the format that every Redis reads, each an array of bulk strings
// (https://redis.io/docs/latest/develop/reference/protocol-spec/).
type Packet []byte

// Begin returns the beginning of a command with this number of words, including the first ones.
func Begin(words int, first ...string) Packet {
	p := Packet(nil).Array(words)
	for _, w := range first {
		p = p.Text(w)
	}
	return p
}

// Array appends the header of a command with this number of words.
func (p Packet) Array(words int) Packet {
	p = strconv.AppendInt(append(p, '*'), int64(words), 10)
	return append(p, "\r\n"...)
}

// Text appends a word.
func (p Packet) Text(s string) Packet {
	p = append(p, '$')
	p = strconv.AppendInt(p, int64(len(s)), 10)
	p = append(p, "\r\n"...)
	p = append(p, s...)
	return append(p, "\r\n"...)
}

// Number appends a word.
func (p Packet) Number(n int64) Packet {
	var digits [20]byte
	return p.Text(string(strconv.AppendInt(digits[:0], n, 10)))
}

// Words splits the first command of a packet into words, and returns the other commands.
func (p Packet) Words() (words []string, others Packet) {
	line := func() int {
		head, rest, _ := bytes.Cut(p[1:], []byte("\r\n"))
		p = rest
		n, _ := strconv.Atoi(string(head))
		return n
	}
	words = make([]string, line())
	for i := range words {
		n := line()
		words[i], p = string(p[:n]), p[n+len("\r\n"):]
	}
	return words, p
}
