package serve

import (
	"net/http"
	"strconv"
	"time"
)

// showLeader answers GET /leader: at once, or when the token is not the one that the program has seen.
func (s *Server) showLeader(w http.ResponseWriter, hr *http.Request) error {
	r := &request{hr, time.Now()}
	if s.office == nil {
		return errNoOffice
	}
	seen, wait, err := longPoll(r)
	if err != nil {
		return err
	}
	if wait > 0 {
		s.office.await(callerOf(hr).sending, seen, wait)
	}
	a := s.office.tell(r.since)
	write(w, statusOf(a.Leader), a)
	return nil
}

// resign answers DELETE /leader?token=N.
func (s *Server) resign(w http.ResponseWriter, r *http.Request) error {
	if s.office == nil {
		return errNoOffice
	}
	text := r.URL.Query().Get("token")
	token, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil:
		return bad("token=%s: the token is wanted of the term that is resigned", text)
	case !s.office.resign(token):
		return errTermOver
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
