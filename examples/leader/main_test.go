package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/onservers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheStoryIsTrue(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // if something were wrong
		defer cancel()
		var out strings.Builder
		require.NoError(t, story(ctx, &out, urls))
		assert.Contains(t, out.String(), "4 terms, one leader at a time")
		assert.Contains(t, out.String(), "lock lost")
		for _, name := range []string{"anna", "boris", "clara"} {
			assert.Contains(t, out.String(), name+" leads")
		}
	})
}
