package serve

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// refuses returns why a request may not be served, whoever sends it, or nil.
//
// On the loopback interface any page in a browser on this machine can send requests. A browser says
// from which page one comes, and by which name the server was reached, which an attacker's own name can
// stand for; both are looked at. Programs send neither an Origin nor another machine's name.
func (c *Config) refuses(r *http.Request) error {
	host, own := hostOf(r.Host), "http://"+r.Host
	if r.TLS != nil {
		own = "https://" + r.Host
	}
	// A socket with a page may have been forwarded to a browser, where an attacker's name can stand for it.
	// Such names have a dot.
	isForeign := c.IsLoopback || c.Page != nil && r.TLS == nil && strings.Contains(host, ".")
	if isForeign && !isLocal(host) {
		return newProblem(http.StatusForbidden, kindForbidden, "this server answers only to localhost, not to "+host)
	}
	if origin := r.Header.Get("Origin"); (c.IsLoopback || c.Page != nil) && origin != "" && origin != own {
		return newProblem(http.StatusForbidden, kindForbidden, "pages of other sites may not use this server")
	}
	return nil
}

// hostOf returns a Host without its port.
func hostOf(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.Trim(host, "[]")
}

func isLocal(host string) bool {
	address, err := netip.ParseAddr(host)
	return err == nil && address.IsLoopback() || strings.EqualFold(host, "localhost")
}
