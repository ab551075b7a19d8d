package stage

import (
	"fmt"
	"net"
	"net/url"

	"github.com/redquorum/redquorum/internal/relay"
)

// A Machine has its own way to the servers, which can be cut while the other machines keep theirs.
type Machine struct {
	Name   string
	URLs   []string // its ends of the wires, as pool.Open wants them
	relays []*relay.Relay
}

// Machines gives each name a machine. stop takes the wires away.
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
				return nil, nil, fmt.Errorf("URL %d: this example needs redis://host:port", i+1) // not repeated: it may hold a password
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

// Cut loses all packets from now on, without a word to either side.
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
