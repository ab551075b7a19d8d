// Package servers gives the examples something to run on, so that they need
// nothing but Go, and breaks the way to it. It is no part of what they show: a
// program of your own hands the URLs of its servers to pool.Open.
package servers
