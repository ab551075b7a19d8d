package serve

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// refuses returns why a request may not be served, or nil.
//
// On the loopback interface any page in a browser on this machine can send requests. A browser says
// from which page one comes, and by which name the server was reached, which an attacker's own name can
// stand for; both are looked at. Programs send neither an Origin nor another machine's name.
func (c *Config) refuses(r *http.Request) *problem {
	if c.IsLoopback {
		if host := hostOf(r.Host); !isLocal(host) {
			return newProblem(http.StatusForbidden, kindForbidden, "this server answers only to localhost, not to "+host)
		}
		own := "http://" + r.Host
		if r.TLS != nil {
			own = "https://" + r.Host
		}
		if origin := r.Header.Get("Origin"); origin != "" && origin != own {
			return newProblem(http.StatusForbidden, kindForbidden, "pages of other sites may not use this server")
		}
	}
	if c.Token == "" {
		return nil
	}
	given, isBearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	// Of the sums, because the comparison takes longer for a longer text.
	have, want := sha256.Sum256([]byte(given)), sha256.Sum256([]byte(c.Token))
	if !isBearer || subtle.ConstantTimeCompare(have[:], want[:]) == 0 {
		return newProblem(http.StatusUnauthorized, kindForbidden, `the header "Authorization: Bearer" with the token of the server is missing or wrong`)
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
