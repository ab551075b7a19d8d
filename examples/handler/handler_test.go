package main

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/onservers"
	"github.com/redquorum/redquorum/redlock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The story returns an error if what it shows did not happen.
func TestStory(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var out strings.Builder
		require.NoError(t, story(t.Context(), &out, urls, redlock.MemoryGuard(false)))
		assert.Contains(t, out.String(), "409 Conflict")
	})
}

func TestAPaymentThatFailsIsNotBookedAndMayBeTriedAgain(t *testing.T) {
	onservers.Run(t, func(t *testing.T, urls []string) {
		var ledger Ledger
		in, err := open(t.Context(), &ledger, urls, redlock.MemoryGuard(false))
		require.NoError(t, err)
		defer in.close()
		c, reply := in.start("/orders/7")
		c.answer <- errors.New("declined")
		assert.Equal(t, "502 Bad Gateway", <-reply)
		_, paid := ledger.paid.Load("7")
		assert.False(t, paid)
		c, reply = in.start("/orders/7")
		c.answer <- nil
		assert.Equal(t, "200, order 7 is paid", <-reply)
	})
}
