package main

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Names and values come from whoever can write to the servers, and so do parts
// of their errors. Printed as they are they could move a terminal's cursor, or
// rewrite what stands on it.

// word is s as one word of a line, in quotes and with escapes where it is none.
func word(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == ' ' || r == '"' || r == '\\' }
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, odd) {
		return strconv.Quote(s)
	}
	return s
}

// harmless is a line of text with escapes for what cannot be printed.
func harmless(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return s
	}
	quoted := strconv.Quote(s)
	return strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
}

// valueShown is how much of a value the tables show: enough to tell two apart.
const valueShown = 12

// brief is the beginning of a value, as a word.
func brief(value string) string {
	if shown := []rune(word(value)); len(shown) > valueShown {
		return string(shown[:valueShown-1]) + "…"
	}
	return word(value)
}
