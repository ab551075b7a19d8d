package httplock

import "errors"

// ErrSkip, returned by a key function or wrapped in what it returns, lets the
// request pass without a lock: for instance one that only reads.
var ErrSkip = errors.New("httplock: the request needs no lock")

// A KeyError says that a request names no lock: the key function failed, or
// redlock refuses the name that it made.
type KeyError struct {
	Err error // the key function's, or redlock's
}

func (e *KeyError) Error() string { return "httplock: no lock for this request: " + e.Err.Error() }

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }
