package pool

import (
	"bytes"
	"strconv"
)

// A packet is a request as every Redis reads it: an array of bulk strings
// (https://redis.io/docs/latest/develop/reference/protocol-spec/). It is made
// once, by the first node that a request is submitted to, for all of them.
type packet []byte

// begin makes the beginning of a packet of so many words, with the first of
// them.
func begin(words int, first ...string) packet {
	p := append(packet("*"), strconv.Itoa(words)...)
	p = append(p, "\r\n"...)
	for _, w := range first {
		p = p.text(w)
	}
	return p
}

// text appends a word.
func (p packet) text(s string) packet {
	p = append(p, '$')
	p = strconv.AppendInt(p, int64(len(s)), 10)
	p = append(p, "\r\n"...)
	p = append(p, s...)
	return append(p, "\r\n"...)
}

// number appends a word.
func (p packet) number(n int64) packet {
	var digits [20]byte
	return p.text(string(strconv.AppendInt(digits[:0], n, 10)))
}

// words takes a packet apart again.
func (p packet) words() []string {
	line := func() int {
		head, rest, _ := bytes.Cut(p[1:], []byte("\r\n"))
		p = rest
		n, _ := strconv.Atoi(string(head))
		return n
	}
	words := make([]string, line())
	for i := range words {
		n := line()
		words[i], p = string(p[:n]), p[n+len("\r\n"):]
	}
	return words
}
