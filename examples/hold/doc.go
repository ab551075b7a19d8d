// Package hold has programs in other languages that work under a lock, by "redlock hold". There is
// no Go here but their test: Go programs have package redlock.
package hold
