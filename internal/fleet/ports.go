package fleet

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// Free ports are looked for here and not by listening on port 0, which gives
// a port that outgoing connections get too (from 32768 on Linux, from 49152
// elsewhere). While a node is killed, a client that dials it could be given the node's
// own port as its local one: then it is connected to itself, and the
// node cannot come back.
const (
	firstPort = 20000
	lastPort  = 32000
	portTries = 50
)

// errPortTaken is what a try on a port returns, wrapped, to be tried on another.
var errPortTaken = errors.New("port is taken")

// claimed keeps fleets of this process apart also while their nodes are down.
// Other processes can only be met at random, which onPort's tries cover.
var claimed = portSet{ports: map[int]bool{}}

type portSet struct {
	sync.Mutex
	ports map[int]bool
}

// add returns false if the port is in the set already.
func (s *portSet) add(port int) bool {
	s.Lock()
	defer s.Unlock()
	if s.ports[port] {
		return false
	}
	s.ports[port] = true
	return true
}

// onPort runs try with a free port until it returns something else than
// errPortTaken; with a fixed port, once. The last port tried stays claimed
// until release, whatever became of it.
func onPort(fixed int, try func(port int) error) error {
	if fixed != 0 {
		claimed.add(fixed)
		return try(fixed)
	}
	for tries := 1; ; tries++ {
		port := freePort()
		err := try(port)
		if !errors.Is(err, errPortTaken) || tries == portTries {
			return err
		}
		release(port)
	}
}

// freePort claims a port that no fleet of this process has; whether the
// machine has it free, the try will tell.
func freePort() int {
	for {
		if port := firstPort + rand.IntN(lastPort-firstPort); claimed.add(port) {
			return port
		}
	}
}

func release(port int) {
	claimed.Lock()
	defer claimed.Unlock()
	delete(claimed.ports, port)
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// fixedPort is the caller's port for node i, or 0 for any.
func (o Options) fixedPort(i int) int {
	if o.Ports == nil {
		return 0
	}
	return o.Ports[i]
}
