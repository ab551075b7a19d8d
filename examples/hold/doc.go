// Package hold contains programs in other languages that work under a lock, with "redlock hold".
// The only Go code here is their test, because Go programs use package redlock.
package hold
