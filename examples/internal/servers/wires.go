package servers

import (
	"fmt"
	"net"
	"net/url"

	"github.com/redquorum/redquorum/internal/relay"
)

// Wires are one machine's way to the servers, which can be cut while the other machines keep
// theirs.
type Wires struct {
	relays []*relay.Relay
	urls   []string
}

// NewWires lays one to each server.
func NewWires(urls []string) (*Wires, error) {
	w := &Wires{}
	for i, raw := range urls {
		u, err := url.Parse(raw)
		if err != nil || u.Scheme != "redis" {
			w.Close()
			return nil, fmt.Errorf("URL %d: this example needs redis://host:port", i+1) // not repeated: it may hold a password
		}
		if u.Port() == "" {
			u.Host = net.JoinHostPort(u.Hostname(), "6379")
		}
		r, err := relay.New(u.Host)
		if err != nil {
			w.Close()
			return nil, err
		}
		w.relays = append(w.relays, r)
		end, _ := url.Parse(r.URL())
		u.Host = end.Host
		w.urls = append(w.urls, u.String())
	}
	return w, nil
}

// URLs are the machine's ends of the wires, as pool.Open wants them.
func (w *Wires) URLs() []string { return w.urls }

// Cut loses all packets from now on, without a word to either side.
func (w *Wires) Cut() {
	for _, r := range w.relays {
		r.Break(relay.Requests, relay.Fault{Mode: relay.Drop})
		r.Break(relay.Replies, relay.Fault{Mode: relay.Drop})
	}
}

// Mend ends a Cut.
func (w *Wires) Mend() {
	for _, r := range w.relays {
		r.Heal()
	}
}

// Close takes the wires away.
func (w *Wires) Close() {
	for _, r := range w.relays {
		r.Close()
	}
}
