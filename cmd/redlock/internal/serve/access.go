package serve

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// refuses returns the reason to reject a request of any client, or nil.
//
// On the loopback interface any page in a browser on this machine can send requests, and a socket
// may be forwarded to such a machine. A browser sends the Origin of the page, and the host name in
// its URL. An attacker's own name can lead to the server, so both are checked. Programs send
// neither an Origin nor another machine's name, and HTTP/1.0 sends no name at all.
func (c *Config) refuses(r *http.Request) error {
	host, own := hostOf(r.Host), "http://"+r.Host
	if r.TLS != nil {
		own = "https://" + r.Host
	}
	// An attacker's name for a forwarded socket with a page has a dot.
	isForeign := c.IsLoopback && host != "" || c.Page != nil && r.TLS == nil && strings.Contains(host, ".")
	isAllowed := func(name string) bool { return strings.EqualFold(name, host) }
	if isForeign && !isLocal(host) && !slices.ContainsFunc(c.Hosts, isAllowed) {
		return api.NewProblem(http.StatusForbidden, api.KindForbidden, "the header Host must be localhost, not "+host+": redlock serve --allow-host permits another name")
	}
	if origin := r.Header.Get("Origin"); origin != "" && (c.Page == nil || origin != own) {
		return api.NewProblem(http.StatusForbidden, api.KindForbidden, "web pages of other origins must not use this server: omit the header Origin in a program")
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
