package fleet

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// OnPort tries ports below the range of outgoing connections (from 32768 on Linux, from 49152 on
// other systems). Listening on port 0 would pick one from that range. While a node is killed, a
// client that dials it could then get the node's own port as its local one. The client would be
// connected to itself, and the node could not return.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 50
)

// ErrPortTaken is the error of a try on a used port. OnPort then tries another.
var ErrPortTaken = errors.New("port is taken")

// claimed keeps fleets of this process apart, even while their nodes are down. Other processes
// collide only at random, which OnPort handles with another try.
var claimed sync.Map // by port

// OnPort runs try with a free port for node i until it returns an error other than ErrPortTaken, or
// nil. With a port from the options it runs try once. The last port stays claimed until
// ReleasePort, even after an error.
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

// freePort claims a port that no fleet of this process uses. Only a try shows whether the port is
// free on this machine.
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
