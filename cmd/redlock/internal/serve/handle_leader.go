package serve

import (
	"net/http"

	"github.com/redquorum/redquorum/cmd/redlock/internal/rights"
	"github.com/redquorum/redquorum/cmd/redlock/internal/serve/api"
)

// ofOffice returns the name of the office, for which a request must have the right.
func (s *Server) ofOffice(*request) ([]string, error) {
	if s.office == nil {
		return nil, api.ErrNoOffice
	}
	return []string{s.config.Office}, nil
}

// showLeader answers GET /leader: at once, or when the token differs from the token that the
// program has seen.
func (s *Server) showLeader(w http.ResponseWriter, r *request) error {
	seen, wait, err := api.LongPoll(r.Request)
	if err != nil {
		return err
	}
	if wait > 0 {
		s.office.await(r, seen, wait)
		if err := s.mayStill(r, rights.Lock, []string{s.config.Office}); err != nil {
			return err
		}
	}
	a := s.office.tell(r.since)
	return api.Write(w, api.StatusIf(a.Leader), a)
}

// resign answers DELETE /leader?token=N.
func (s *Server) resign(w http.ResponseWriter, r *request) error {
	token, err := api.Number(r.Request, "token", 0, "the token of the term that is resigned")
	switch {
	case err != nil:
		return err
	case token == 0:
		return api.Bad("token=TOKEN is missing: specify the token of the term to resign")
	case !s.office.resign(token):
		return api.ErrTermOver
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
