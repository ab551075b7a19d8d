// Package serve contains clients of "redlock serve" in other languages, each in one file to copy.
// The only Go code here is their test, because Go programs use package redlock.
package serve
