package plain

import (
	"strings"
	"unicode"
)

// Untidy returns what is wrong with a name that a person cannot tell from another: it has a control
// character, or begins or ends with a blank. It returns nothing for other names. A crontab with the line
// ends of Windows has such names, and so has text that was copied from a page.
func Untidy(name string) string {
	switch {
	case strings.ContainsFunc(name, unicode.IsControl):
		return "has a control character"
	case strings.TrimFunc(name, isBlank) != name:
		return "begins or ends with a blank"
	}
	return ""
}

// Tidy returns the name that was probably meant by an untidy one.
func Tidy(name string) string {
	printed := func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}
	return strings.TrimFunc(strings.Map(printed, name), isBlank)
}

// isBlank reports whether nothing is seen of a character, such as a space or a zero-width space.
func isBlank(r rune) bool { return unicode.IsSpace(r) || unicode.In(r, unicode.Z, unicode.Cf) }
