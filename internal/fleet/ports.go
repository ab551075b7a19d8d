package fleet

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports that are tried are below those of outgoing connections (from 32768 on Linux, from
// 49152 elsewhere). Listening on port 0 would give one of those. While a node is killed, a
// client that dials it could be given the node's own port as its local one: then the client is
// connected to itself, and the node cannot come back.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 50
)

// ErrPortTaken is matched by the error of a try on a port that is in use, so that OnPort tries
// another.
var ErrPortTaken = errors.New("port is taken")

// claimed keeps fleets of this process apart also while their nodes are down.
// Other processes can only be met at random, which OnPort's tries cover.
var claimed sync.Map // by port

// OnPort runs try with a free port for node i until it returns something else than
// ErrPortTaken; with a port of the caller's, once. The last port tried stays claimed until
// ReleasePort, whatever became of it.
func (o Options) OnPort(i int, try func(port int) error) error {
	if o.Ports != nil {
		claimed.Store(o.Ports[i], true)
		return try(o.Ports[i])
	}
	for tries := 1; ; tries++ {
		port := freePort()
		err := try(port)
		if !errors.Is(err, ErrPortTaken) || tries == portTries {
			return err
		}
		ReleasePort(port)
	}
}

// freePort claims a port that no fleet of this process has. Whether the machine has it free
// shows when it is tried.
func freePort() int {
	for {
		port := firstPort + rand.IntN(lastPort-firstPort)
		if _, taken := claimed.LoadOrStore(port, true); !taken {
			return port
		}
	}
}

// ReleasePort ends the claim of OnPort.
func ReleasePort(port int) { claimed.Delete(port) }

// Loopback returns the address of a port of this machine.
func Loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
