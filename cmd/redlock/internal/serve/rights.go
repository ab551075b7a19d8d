package serve

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
	"github.com/redquorum/redquorum/cmd/redlock/internal/survey"
)

// anybody is the client of a server without Rights.
var anybody = &rights.All()[0]

var errUnknown = api.NewProblem(http.StatusUnauthorized, api.KindForbidden,
	`unknown client: the header "Authorization: Bearer TOKEN" is missing, or the server does not know the token`)

// unknown returns errUnknown. The error names a certificate that would have counted.
func unknown(r *http.Request) error {
	if r.Header.Get("Authorization") != "" || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 {
		return errUnknown
	}
	return api.NewProblem(http.StatusUnauthorized, api.KindForbidden,
		"no client in --tokens has the certificate of "+rights.Describe(r.TLS.PeerCertificates[0])+`: add its subject, or a subject alternative name, to the "subjects" of an entry`)
}

// clientOf returns the sender of a request, by its token, or without a token by its certificate.
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
		s.logRefusal("", "a request without a known token or certificate, from "+s.config.asker(r))
		return nil, unknown(r)
	}
	return client, nil
}

// asker describes the sender of a request, for the log.
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

// may returns an error if the client of a request lacks a right for any of these locks.
func (s *Server) may(r *request, do rights.Right, names []string) error {
	for _, name := range names {
		if r.client.May(do, name) {
			continue
		}
		p := api.NewProblem(http.StatusForbidden, api.KindForbidden, fmt.Sprintf("%q may not %s %.200q: its entry in --tokens has no pattern for it", r.client.Label, verbs[do], name))
		p.Right, p.Pattern = string(do), rights.Pattern(name)
		s.logRefusal(r.client.Label, p.Detail)
		return p
	}
	return nil
}

// mayOperate returns an error if the client of a request is not an operator.
func (s *Server) mayOperate(r *request) error {
	if r.client.Operator {
		return nil
	}
	text := fmt.Sprintf("%q may not list the sessions of all clients, or end one by its public id: its entry in --tokens has no sessions: true", r.client.Label)
	if r.client.Label == "" {
		text = "no client may list the sessions of all clients, or end one by its public id: redlock serve needs --tokens, with an operator's entry that has sessions: true"
	}
	p := api.NewProblem(http.StatusForbidden, api.KindForbidden, text)
	p.Right = "sessions"
	s.logRefusal(r.client.Label, p.Detail)
	return p
}

// mayStill is like may, with the present rights, for a request that has waited.
func (s *Server) mayStill(r *request, do rights.Right, names []string) (err error) {
	if r.client, err = s.clientOf(r.Request); err != nil {
		return err
	}
	return s.may(r, do, names)
}

var verbs = map[rights.Right]string{rights.Look: "look at", rights.Lock: "lock"}

// mayShow reports whether a client may see an event. An event has several names of one request as
// one text, which no pattern matches.
func mayShow(e *survey.Event, c *rights.Client) bool {
	return e.Lock == "" || c.MayAll(rights.Look) || c.May(rights.Look, e.Lock) && !strings.Contains(e.Lock, ", ")
}
