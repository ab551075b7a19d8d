package main

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/examples/internal/stage"
)

func TestMain(m *testing.M) {
	ttl = 9 * time.Second // a busy machine may stand still for seconds
	goleak.VerifyTestMain(m)
}

// TestStory runs the story, which returns an error if an event did not happen.
func TestStory(t *testing.T) { stage.Test(t, story, "409 Conflict") }

func TestFailedPaymentIsNotBookedAndCanBeRepeated(t *testing.T) {
	stage.OnServers(t, func(t *testing.T, urls []string) {
		var ledger Ledger
		in, err := open(&ledger, urls)
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
