package serve

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
)

// Rights say which clients are known, and what each may do. They may change at any time.
type Rights interface {
	Current() rights.Table // the last that was right
	Wrong() error          // why what is there now is not used, or nil
}

// anybody is the client of a server without Rights.
var anybody = &rights.All()[0]

var errUnknown = newProblem(http.StatusUnauthorized, kindForbidden,
	`unknown client: the header "Authorization: Bearer TOKEN" is missing, or the server does not know the token`)

// unknown is errUnknown, which names the certificate if it would have counted.
func unknown(r *http.Request) error {
	if r.Header.Get("Authorization") != "" || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return errUnknown
	}
	return newProblem(http.StatusUnauthorized, kindForbidden,
		"no client in --tokens has the certificate of "+rights.Describe(r.TLS.PeerCertificates[0])+`: add its subject, or a subject alternative name, to the "subjects" of an entry`)
}

// clientOf returns who sends a request: by its token, or without one by its certificate.
func (s *Server) clientOf(r *http.Request) (*rights.Client, error) {
	if s.config.Rights == nil {
		return anybody, nil
	}
	var client *rights.Client
	if given := r.Header.Get("Authorization"); given != "" {
		if scheme, token, _ := strings.Cut(given, " "); strings.EqualFold(scheme, "Bearer") {
			client = s.config.Rights.Current().OfToken(token)
		}
	} else if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		client = s.config.Rights.Current().OfCertificate(r.TLS.PeerCertificates[0])
	}
	if client == nil {
		s.refused("", "a request without a known token or certificate, from "+s.config.asker(r))
		return nil, unknown(r)
	}
	return client, nil
}

// asker says from where a request came, and by which right, for the log.
func (c *Config) asker(r *http.Request) string {
	from := r.RemoteAddr
	if peer, ok := r.Context().Value(peerKey{}).(string); ok {
		from = peer
	}
	if r.Header.Get("Authorization") != "" {
		from += ", with a token"
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		from += fmt.Sprintf(", with the certificate of %q", rights.Describe(r.TLS.PeerCertificates[0]))
	}
	return from
}

// may returns why the client of a request may not do something with all of these locks, or nil.
func (s *Server) may(r *request, do rights.Right, names []string) error {
	for _, name := range names {
		if r.client.May(do, name) {
			continue
		}
		p := newProblem(http.StatusForbidden, kindForbidden, fmt.Sprintf("%q may not %s %.200q: its entry in --tokens has no pattern for it", r.client.Label, verbs[do], name))
		p.Right, p.Pattern = string(do), rights.Pattern(name)
		s.refused(r.client.Label, p.Detail)
		return p
	}
	return nil
}

// mayStill is may by the rights of now, for a request that has waited.
func (s *Server) mayStill(r *request, do rights.Right, names []string) (err error) {
	if r.client, err = s.clientOf(r.Request); err != nil {
		return err
	}
	return s.may(r, do, names)
}

var verbs = map[rights.Right]string{rights.Look: "look at", rights.Lock: "lock"}

// isFor reports whether an event may be shown to a client. Several names that were asked for at once are one
// text in it, which no pattern is for.
func (e *Event) isFor(c *rights.Client) bool {
	return e.Lock == "" || c.MayAll(rights.Look) || c.May(rights.Look, e.Lock) && !strings.Contains(e.Lock, ", ")
}
