package httplock

import "errors"

// ErrSkip lets a request pass without a lock, for example one that only reads. A key function
// returns or wraps it.
var ErrSkip = errors.New("httplock: the request needs no lock")

// A KeyError says that a request names no lock: the key function failed, or redlock refuses the
// name that it made.
type KeyError struct {
	Err error // the key function's, or redlock's
}

func (e *KeyError) Error() string { return "httplock: no lock for this request: " + e.Err.Error() }

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }
