package engine

import (
	"context"

	"github.com/redquorum/redquorum/redlock/internal/core"
)

// Begin begins an Acquire. The caller sleeps until it calls the returned function.
func (e *Engine) Begin(key string, t *core.Terms) (wake func(context.Context) (Lock, *core.Failure, error)) {
	return e.begin(key, core.Caller{Terms: t}).grant
}

// FillHints makes the greatest number of keys listen.
func (e *Engine) FillHints() { e.hints.count.Add(maxListening) }
