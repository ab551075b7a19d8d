package main

import "strings"

// The values that package redlock gives its locks begin with 40 random hexadecimal digits, behind
// which a space and a label may stand. No two locks share the first of those digits, so they are
// enough to tell people which lock is meant. Values of other clients may begin alike, from one
// lock to the next: a host's name and a number, for instance. They are shown, and asked for, whole.
const (
	randomDigits = 40
	shownDigits  = 12
	leastDigits  = 8 // of a beginning that is asked for: two locks of one name share them once in 4 billion

	// shownRunes is how much of other values the tables show.
	shownRunes = 64
)

const hexDigits = "0123456789abcdef"

// randomPart returns the digits that a value of package redlock begins with; ok is false for
// another value.
func randomPart(value string) (digits string, ok bool) {
	if len(value) < randomDigits || len(value) > randomDigits && value[randomDigits] != ' ' {
		return "", false
	}
	digits = value[:randomDigits]
	return digits, strings.Trim(digits, hexDigits) == ""
}

// valueShown returns as much of a value as "release --value" wants, as a word of a table. Of a very
// long one it is the beginning, which ends in "…".
func valueShown(value string) string {
	if digits, ok := randomPart(value); ok {
		return digits[:shownDigits]
	}
	shown := []rune(word(value))
	if len(shown) > shownRunes {
		return string(shown[:shownRunes-1]) + "…"
	}
	return string(shown)
}

// isBeginning reports whether text is what status shows of a value of package redlock, or more of
// its digits: not less than leastDigits, and not the whole value.
func isBeginning(text string) bool {
	return leastDigits <= len(text) && len(text) <= randomDigits && strings.Trim(text, hexDigits) == ""
}

// begins reports whether a value of package redlock begins with the digits.
func begins(value, digits string) bool {
	random, ok := randomPart(value)
	return ok && strings.HasPrefix(random, digits)
}
