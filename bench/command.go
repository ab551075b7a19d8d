package main

import (
	"net/url"
	"strings"
)

// plain is the characters, beside letters and digits, that every shell reads as themselves.
const plain = "-_=+,./:@%"

// commandLine is the command that makes the run anew. Passwords in URLs are left out.
func commandLine(args []string) string {
	words := []string{"go", "-C", "bench", "run", "."}
	for _, a := range args {
		flag, value, both := strings.Cut(a, "=")
		if !both || !strings.HasPrefix(flag, "-") {
			flag, value = "", a
		} else {
			flag += "="
		}
		parts := strings.Split(value, ",")
		for i, p := range parts {
			if u, err := url.Parse(p); err == nil && u.User != nil {
				parts[i] = u.Redacted()
			}
		}
		words = append(words, quote(flag+strings.Join(parts, ",")))
	}
	return strings.Join(words, " ")
}

// quote writes a word so that a shell reads it as it is.
func quote(word string) string {
	special := func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9'
		return !letter && !strings.ContainsRune(plain, r)
	}
	if word != "" && !strings.ContainsFunc(word, special) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// hide takes all that could be the user and password of a URL out of what was typed, which may be
// no URL.
func hide(typed string) string {
	if i := strings.LastIndex(typed, "@"); i >= 0 {
		return "***" + typed[i:]
	}
	return typed
}
