package serve

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// refuses returns why a request may not be served, whoever sends it, or nil.
//
// On the loopback interface any page in a browser on this machine can send requests, and a socket may be
// forwarded to such a machine. A browser sends the Origin of the page, and the name by which it has reached
// the server, which an attacker's own name can stand for; both are looked at. Programs send neither an Origin
// nor another machine's name, and HTTP/1.0 no name at all.
func (c *Config) refuses(r *http.Request) error {
	host, own := hostOf(r.Host), "http://"+r.Host
	if r.TLS != nil {
		own = "https://" + r.Host
	}
	// An attacker's name for a forwarded socket with a page has a dot.
	isForeign := c.IsLoopback && host != "" || c.Page != nil && r.TLS == nil && strings.Contains(host, ".")
	isAllowed := func(name string) bool { return strings.EqualFold(name, host) }
	if isForeign && !isLocal(host) && !slices.ContainsFunc(c.Hosts, isAllowed) {
		return newProblem(http.StatusForbidden, kindForbidden, "the header Host must be localhost, not "+host+": redlock serve --allow-host permits another name")
	}
	if origin := r.Header.Get("Origin"); origin != "" && (c.Page == nil || origin != own) {
		return newProblem(http.StatusForbidden, kindForbidden, "web pages of other origins must not use this server: omit the header Origin in a program")
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
