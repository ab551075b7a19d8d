package engine

import (
	"context"

	"github.com/redquorum/redquorum/redlock/internal/core"
)

// Begin begins an Acquire. The caller sleeps until it calls what is returned.
func (e *Engine) Begin(key string, t *core.Terms) (wake func(context.Context) (Lock, *core.Failure, error)) {
	return e.begin(key, core.Caller{Terms: t}).grant
}

// FillHints has so many keys listen that there is no room for more.
func (e *Engine) FillHints() { e.hints.count.Add(maxListening) }
