package stage

import (
	"fmt"
	"net"
	"net/url"

	"github.com/redquorum/redquorum/internal/fleet/relay"
)

// A Machine has its own connection to the servers, which can be cut without affecting other
// machines.
type Machine struct {
	Name   string
	URLs   []string // URLs of its relays, for pool.Open
	relays []*relay.Relay
}

// Machines returns a machine for each name. stop closes their relays.
func Machines(urls []string, names ...string) (all []*Machine, stop func(), err error) {
	stop = func() {
		for _, m := range all {
			for _, r := range m.relays {
				r.Close()
			}
		}
	}
	for _, name := range names {
		m := &Machine{Name: name}
		all = append(all, m)
		for i, raw := range urls {
			u, err := url.Parse(raw)
			if err != nil || u.Scheme != "redis" {
				stop()
				return nil, nil, fmt.Errorf("URL %d: this example needs redis://host:port", i+1) // the error omits the URL, which may contain a password
			}
			if u.Port() == "" {
				u.Host = net.JoinHostPort(u.Hostname(), "6379")
			}
			r, err := relay.New(u.Host)
			if err != nil {
				stop()
				return nil, nil, err
			}
			u.Host = r.Addr()
			m.relays, m.URLs = append(m.relays, r), append(m.URLs, u.String())
		}
	}
	return all, stop, nil
}

// Cut drops all packets from now on, without notifying either side.
func (m *Machine) Cut() {
	for _, r := range m.relays {
		r.Break(relay.Requests, relay.Fault{Mode: relay.Drop})
		r.Break(relay.Replies, relay.Fault{Mode: relay.Drop})
	}
}

// Mend ends a Cut.
func (m *Machine) Mend() {
	for _, r := range m.relays {
		r.Heal()
	}
}
