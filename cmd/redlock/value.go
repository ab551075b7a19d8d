package main

import (
	"regexp"
	"strings"
)

// The values that package redlock gives its locks begin with 40 random hexadecimal digits, behind
// which a space and a label may stand. No two locks share the first of those digits, so they are
// enough to tell people which lock is meant. Values of other clients may begin alike, from one
// lock to the next: a host's name and a number, for instance. They are shown, and asked for, whole.
var (
	ofRedlock   = regexp.MustCompile(`^[0-9a-f]{40}( |$)`)
	isTooShort  = regexp.MustCompile(`^[0-9a-f]{1,7}$`)
	isBeginning = regexp.MustCompile(`^[0-9a-f]{8,40}$`) // with 8, two locks of one name begin alike once in 4 billion
)

const (
	leastDigits = 8
	shownDigits = 12
	// shownRunes is how much of other values the tables show.
	shownRunes = 64
)

// valueShown returns as much of a value as "release --value" wants, as a word of a table. Of a very
// long one it is the beginning, which ends in "…".
func valueShown(value string) string {
	if ofRedlock.MatchString(value) {
		return value[:shownDigits]
	}
	shown := []rune(word(value))
	if len(shown) > shownRunes {
		return string(shown[:shownRunes-1]) + "…"
	}
	return string(shown)
}

// begins reports whether a value of package redlock begins with the digits.
func begins(value, digits string) bool {
	return ofRedlock.MatchString(value) && strings.HasPrefix(value, digits)
}
