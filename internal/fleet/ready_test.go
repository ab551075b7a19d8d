package fleet_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/internal/fleet"
)

func TestAPasswordIsNotRepeated(t *testing.T) {
	t.Parallel()
	m := miniredis.RunT(t)
	m.Server().SetPreHook(func(c *server.Peer, cmd string, args ...string) bool {
		if cmd != "AUTH" {
			return false
		}
		c.WriteError("ERR unknown command 'AUTH', with args beginning with: 'bob' '" + args[1] + "' ")
		return true
	})
	_, err := fleet.Start(t.Context(), fleet.Addrs, fleet.Options{URLs: []string{"redis://bob:hunter2@" + m.Addr()}})
	assert.ErrorContains(t, err, "does not accept")
	assert.NotContains(t, err.Error(), "hunter2")
}
