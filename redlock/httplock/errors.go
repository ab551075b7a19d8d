package httplock

import "errors"

// ErrSkip lets a request pass without a lock, for example a request that only reads. A key function
// returns or wraps it.
var ErrSkip = errors.New("httplock: the request needs no lock")

// A KeyError means that a request names no lock: the key function failed, or redlock refused the
// name.
type KeyError struct {
	Err error // error of the key function or of redlock
}

func (e *KeyError) Error() string { return "httplock: no lock for this request: " + e.Err.Error() }

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }
