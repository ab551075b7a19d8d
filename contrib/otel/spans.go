package redlockotel

import (
	"context"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/redquorum/redquorum/internal/measure"
	"github.com/redquorum/redquorum/redlock"
)

// maxVoteSpans limits the number of child spans per acquisition. An acquisition that waits in
// contention for an hour gets a hundred thousand replies.
const maxVoteSpans = 128

// spans converts events into spans.
type spans struct {
	tracer trace.Tracer
	names  bool
}

// An acquisition is in progress, or may still get votes.
type acquisition struct {
	span     trace.Span
	shown    bool // the span is recorded
	attempts atomic.Int64
	granted  atomic.Int64 // votes of the last try
	votes    atomic.Int64
}

// An acquisitionKey is the key of an acquisition in its context. It contains the spans, because the
// context may contain other tracers.
type acquisitionKey struct{ of *spans }

func (s *spans) start(ctx context.Context, name string) context.Context {
	ctx, span := s.tracer.Start(ctx, "redlock.acquire", trace.WithAttributes(s.name(name)...))
	a := &acquisition{span: span, shown: span.IsRecording()}
	return context.WithValue(ctx, acquisitionKey{s}, a)
}

func (s *spans) observe(e redlock.Event) {
	if e.Kind == redlock.EventLost {
		s.lost(e)
		return
	}
	a, ours := e.Context.Value(acquisitionKey{s}).(*acquisition)
	if !ours || !a.shown {
		return
	}
	switch e.Kind {
	case redlock.EventVote:
		if a.votes.Add(1) <= maxVoteSpans {
			s.vote(e)
		}
	case redlock.EventAttempt:
		a.attempts.Add(1)
		a.granted.Store(int64(e.Votes))
	case redlock.EventAcquired:
		a.granted.Store(int64(e.Votes))
		if e.Permits > 1 {
			a.span.SetAttributes(attribute.Int("redlock.permit", e.Permit))
		}
		a.end(e.Time, nil)
	case redlock.EventNotAcquired:
		a.end(e.Time, e.Err)
	}
}

// lost reports a loss to the caller's span (see Lock.Context). If that span has ended, lost creates
// a child span of it, unless the trace is not sampled.
func (s *spans) lost(e redlock.Event) {
	at := trace.WithTimestamp(e.Time)
	caller := trace.SpanFromContext(e.Context)
	if caller.IsRecording() {
		caller.AddEvent("redlock.lost", at)
		return
	}
	if of := caller.SpanContext(); of.IsValid() && !of.IsSampled() {
		return
	}
	_, span := s.tracer.Start(e.Context, "redlock.lost", at, trace.WithAttributes(s.name(e.Name)...))
	span.SetAttributes(semconv.ErrorTypeKey.String("lost"))
	span.SetStatus(codes.Error, "lost")
	span.End(at)
}

// name returns the attribute with the name of a lock, unless names are omitted.
func (s *spans) name(name string) (attrs []attribute.KeyValue) {
	if s.names {
		attrs = append(attrs, attribute.String("redlock.name", measure.Text(name)))
	}
	return attrs
}

// end completes the span. The description of its status is the outcome, because the text of an
// error contains the name of the lock. The child spans have the nodes' reasons.
func (a *acquisition) end(at time.Time, err error) {
	outcome := measure.Acquisition(err)
	a.span.SetAttributes(
		attribute.String("redlock.outcome", outcome),
		attribute.Int64("redlock.votes", a.granted.Load()),
		attribute.Int64("redlock.attempts", a.attempts.Load()),
	)
	if omitted := a.votes.Load() - maxVoteSpans; omitted > 0 {
		a.span.SetAttributes(attribute.Int64("redlock.votes_omitted", omitted))
	}
	// Another holder is a normal outcome and not an error, above all for TryAcquire.
	if err != nil && outcome != measure.Held {
		a.span.SetAttributes(semconv.ErrorTypeKey.String(outcome))
		a.span.SetStatus(codes.Error, outcome)
	}
	a.span.End(trace.WithTimestamp(at))
}

// vote creates the span of a reply.
func (s *spans) vote(e redlock.Event) {
	attrs := append(address(e.Node),
		semconv.DBSystemNameRedis,
		semconv.DBOperationName(e.Op.String()),
		attribute.String("redlock.op", e.Op.String()),
		attribute.String("redlock.outcome", e.Outcome.String()),
	)
	_, span := s.tracer.Start(e.Context, "redlock.vote",
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(e.Time.Add(-e.Elapsed)), trace.WithAttributes(attrs...))
	if e.Outcome == redlock.Failed || e.Outcome == redlock.Unknown {
		fault := measure.Fault(e.Err)
		span.SetAttributes(attribute.String("redlock.fault", fault), semconv.ErrorTypeKey.String(fault))
		why := ""
		if e.Err != nil {
			why = measure.Text(e.Err.Error())
		}
		span.SetStatus(codes.Error, why)
	}
	span.End(trace.WithTimestamp(e.Time))
}

// address returns the attributes for a node's name, and for the address in it.
func address(node string) []attribute.KeyValue {
	node = measure.Text(node)
	attrs := []attribute.KeyValue{attribute.String("redlock.node", node)}
	name, _, _ := strings.Cut(node, "/") // without the database
	if host, port, err := net.SplitHostPort(name); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err == nil {
			return append(attrs, semconv.ServerAddress(host), semconv.ServerPort(int(n)))
		}
	}
	return append(attrs, semconv.ServerAddress(node))
}
