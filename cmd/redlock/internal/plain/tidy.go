package plain

import (
	"strings"
	"unicode"
)

// Untidy returns the flaw of a name that a person cannot distinguish from another name: a control
// character, or a blank at its start or end. It returns an empty text for other names. Untidy names
// come from a crontab with Windows line ends, or from text copied from a page.
func Untidy(name string) string {
	switch {
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character"
	case strings.TrimFunc(name, isBlank) != name:
		return "begins or ends with a blank"
	}
	return ""
}

// Tidy returns the name that an untidy name was probably meant to be.
func Tidy(name string) string {
	printed := func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}
	return strings.TrimFunc(strings.Map(printed, name), isBlank)
}

// isBlank reports whether a character is invisible, such as a space or a zero-width space.
func isBlank(r rune) bool { return unicode.IsSpace(r) || unicode.In(r, unicode.Z, unicode.Cf) }
