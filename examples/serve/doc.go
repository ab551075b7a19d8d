// Package serve has clients of "redlock serve" in other languages, each in one file to copy. There is
// no Go here but their test: Go programs have package redlock.
package serve
