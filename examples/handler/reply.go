package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// A reply is what a request has brought.
type reply struct {
	from       *instance
	status     int
	retryAfter string // empty: there was none
	body       string
	err        error
}

func (r reply) String() string {
	switch {
	case r.err != nil:
		return r.err.Error()
	case r.status == http.StatusOK:
		return fmt.Sprintf("%d, %s", r.status, strings.TrimSpace(r.body))
	case r.retryAfter == "":
		return fmt.Sprintf("%d %s", r.status, http.StatusText(r.status))
	}
	return fmt.Sprintf("%d %s, Retry-After: %s", r.status, http.StatusText(r.status), r.retryAfter)
}

// want returns an error if the reply is another one.
func (r reply) want(status int, retry bool) error {
	if r.err != nil || r.status != status || (r.retryAfter != "") != retry {
		return fmt.Errorf("should have been %d %s, was: %v", status, http.StatusText(status), r)
	}
	return nil
}

// send sends a request, and does not wait for the reply.
func (s *shop) send(ctx context.Context, to *instance, path string, replies chan<- reply) {
	s.requests.Go(func() { replies <- s.post(ctx, to, path) })
}

func (s *shop) post(ctx context.Context, to *instance, path string) reply {
	failed := func(err error) reply { return reply{from: to, err: err} }
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url+path, nil)
	if err != nil {
		return failed(err)
	}
	answer, err := s.client.Do(request)
	if err != nil {
		return failed(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return failed(err)
	}
	return reply{from: to, status: answer.StatusCode, retryAfter: answer.Header.Get("Retry-After"), body: string(body)}
}
