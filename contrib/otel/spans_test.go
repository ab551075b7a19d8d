package redlockotel_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	redlockotel "github.com/redquorum/redquorum/contrib/otel"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/redlock"
)

// conventions is the schema URL of the version named in doc.go.
const conventions = "https://opentelemetry.io/schemas/1.43.0"

// attributes returns the attributes of a span.
func attributes(s sdktrace.ReadOnlySpan) map[string]any {
	attrs := map[string]any{}
	for _, a := range s.Attributes() {
		attrs[string(a.Key)] = a.Value.AsInterface()
	}
	return attrs
}

// below returns the spans whose parent is s.
func below(spans []sdktrace.ReadOnlySpan, s sdktrace.ReadOnlySpan) (children []sdktrace.ReadOnlySpan) {
	for _, c := range spans {
		if c.Parent().SpanID() == s.SpanContext().SpanID() {
			children = append(children, c)
		}
	}
	return children
}

// lasted checks the start and the duration of a span.
func lasted(t *testing.T, s sdktrace.ReadOnlySpan, began time.Time, lasted time.Duration) {
	t.Helper()
	assert.Zero(t, s.StartTime().Sub(began), "start of %s", s.Name())
	assert.Equal(t, lasted, s.EndTime().Sub(s.StartTime()), "length of %s", s.Name())
}

// TestAcquisitionIsASpan: its parent is the caller's span, and each node's reply is its child, even
// a reply that arrives after its end.
func TestAcquisitionIsASpan(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		ctx, caller := r.tracer.Tracer("test").Start(t.Context(), "caller")
		began := time.Now()
		lock, err := r.Acquire(ctx, "invoice:42")
		require.NoError(t, err)
		time.Sleep(8 * leg)

		spans := r.take("redlock.acquire")
		require.Len(t, spans, 1)
		acquire := spans[0]
		lasted(t, acquire, began, rtt)
		assert.Equal(t, caller.SpanContext().SpanID(), acquire.Parent().SpanID())
		assert.Equal(t, caller.SpanContext().TraceID(), acquire.SpanContext().TraceID())
		assert.Equal(t, trace.SpanKindInternal, acquire.SpanKind())
		assert.Equal(t, conventions, acquire.InstrumentationScope().SchemaURL)
		assert.Equal(t, codes.Unset, acquire.Status().Code)
		assert.Equal(t, map[string]any{
			"redlock.name": "invoice:42", "redlock.outcome": "acquired", "redlock.votes": int64(2), "redlock.attempts": int64(1),
		}, attributes(acquire))

		votes := below(r.take("redlock.vote"), acquire)
		require.Len(t, votes, 3)
		nodes := map[any]bool{}
		for _, v := range votes {
			attrs := attributes(v)
			took := rtt
			if attrs["redlock.node"] == "node3" {
				took = 8 * leg
			}
			lasted(t, v, began, took)
			assert.Equal(t, trace.SpanKindClient, v.SpanKind())
			assert.Equal(t, codes.Unset, v.Status().Code)
			nodes[attrs["redlock.node"]] = true
			assert.Equal(t, map[string]any{
				"redlock.op": "acquire", "redlock.outcome": "granted", "redlock.node": attrs["redlock.node"], "server.address": attrs["redlock.node"],
				"db.system.name": "redis", "db.operation.name": "acquire",
			}, attrs)
		}
		assert.Len(t, nodes, 3)

		assert.Equal(t, caller.SpanContext(), trace.SpanContextFromContext(lock.Context()), "the work is beside it, not below")
		require.NoError(t, lock.Extend(ctx))
		require.NoError(t, lock.Release(ctx))
		time.Sleep(8 * leg)
		assert.Len(t, r.take("redlock.vote"), 3, "what follows is none of the acquisition")
		assert.Len(t, r.take("redlock.acquire"), 1)
	})
}

// TestOutageIsAnError: tools can group these errors.
func TestOutageIsAnError(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		for _, s := range r.world.Servers() {
			s.Crash()
		}
		_, err := r.TryAcquire(t.Context(), "x")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		span := r.take("redlock.acquire")[0]
		assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: "no_quorum"}, span.Status())
		assert.Equal(t, "no_quorum", attributes(span)["error.type"])
	})
}

// TestFailedAcquisitionHasItsReasons: the spans show the reason of each node, the tries, and the
// releases of their grants. Another holder is not an error.
func TestFailedAcquisitionHasItsReasons(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		r.world.Servers()[0].Crash()
		r.world.Servers()[1].Set("x", "another", ttl)
		_, err := r.Acquire(t.Context(), "x", redlock.Retries(1), redlock.RetryInterval(time.Second))
		require.Error(t, err)
		time.Sleep(time.Second)
		spans := r.take("redlock.acquire")
		require.Len(t, spans, 1)
		assert.Equal(t, sdktrace.Status{Code: codes.Unset}, spans[0].Status())
		attrs := attributes(spans[0])
		assert.NotContains(t, attrs, "error.type")
		assert.Equal(t, "held", attrs["redlock.outcome"])
		assert.Equal(t, int64(2), attrs["redlock.attempts"])
		assert.Greater(t, spans[0].EndTime().Sub(spans[0].StartTime()), time.Second)
		count := map[[3]any]int{}
		for _, v := range below(r.take("redlock.vote"), spans[0]) {
			attrs := attributes(v)
			count[[3]any{attrs["redlock.op"], attrs["redlock.node"], attrs["redlock.outcome"]}]++
			faulty := attrs["redlock.outcome"] == "failed"
			assert.Equal(t, faulty, v.Status().Code == codes.Error)
			assert.Equal(t, faulty, v.Status().Description != "")
			assert.Equal(t, faulty, attrs["redlock.fault"] != nil)
			assert.Equal(t, attrs["redlock.fault"], attrs["error.type"])
		}
		assert.Equal(t, map[[3]any]int{
			{"acquire", "node1", "failed"}: 2, {"acquire", "node2", "refused"}: 2, {"acquire", "node3", "granted"}: 2,
			{"release", "node1", "failed"}: 2, {"release", "node2", "refused"}: 2, {"release", "node3", "granted"}: 2,
		}, count)
	})
}

// TestEachAcquisitionHasItsOwnSpan: this includes concurrent acquisitions of the same name, and a
// handover without a request.
func TestEachAcquisitionHasItsOwnSpan(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		var all sync.WaitGroup
		callers := make([]trace.Span, 8)
		for i := range callers {
			ctx, caller := r.tracer.Tracer("test").Start(t.Context(), "caller")
			callers[i] = caller
			all.Go(func() {
				assert.NoError(t, r.Do(ctx, "x", func(context.Context) error { return nil }, redlock.Renew(true)))
			})
		}
		all.Wait()
		time.Sleep(8 * leg)
		spans, votes, heirs := r.take("redlock.acquire"), r.take("redlock.vote"), 0
		require.Len(t, spans, len(callers))
		parents := map[trace.SpanID]bool{}
		for _, s := range spans {
			parents[s.Parent().SpanID()] = true
			assert.Equal(t, "acquired", attributes(s)["redlock.outcome"])
			mine := below(votes, s)
			for _, v := range mine {
				assert.Equal(t, s.SpanContext().TraceID(), v.SpanContext().TraceID())
			}
			assert.Equal(t, attributes(s)["redlock.attempts"] == int64(0), len(mine) == 0)
			if len(mine) == 0 {
				heirs++
				assert.GreaterOrEqual(t, attributes(s)["redlock.votes"], int64(2), "of the lock that was handed over")
			}
		}
		assert.NotZero(t, heirs)
		for _, c := range callers {
			assert.True(t, parents[c.SpanContext().SpanID()])
		}
	})
}

// TestNamesCanBeOmitted: spans do not contain names, and neither do failures.
func TestNamesCanBeOmitted(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		require.NoError(t, r.Do(t.Context(), "invoice:42", func(context.Context) error { return nil }))
		for _, s := range r.world.Servers() {
			s.Set("invoice:42", "another", ttl)
		}
		time.Sleep(8 * leg)
		_, err := r.TryAcquire(t.Context(), "invoice:42")
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.Len(t, r.take("redlock.acquire"), 2)
		for _, s := range r.spans.Ended() {
			assert.NotContains(t, s.Status().Description, "invoice")
			for key, value := range attributes(s) {
				assert.NotEqual(t, "redlock.name", key)
				assert.NotEqual(t, "invoice:42", value)
			}
		}
	}, redlockotel.WithoutNames())
}

// TestLossIsAnEventOfTheCallersSpan: that span has not ended.
func TestLossIsAnEventOfTheCallersSpan(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		ctx, caller := r.tracer.Tracer("test").Start(t.Context(), "caller")
		lock, err := r.Acquire(ctx, "x")
		require.NoError(t, err)
		<-lock.Context().Done()
		time.Sleep(rtt)
		caller.End()
		events := r.take("caller")[0].Events()
		require.Len(t, events, 1)
		assert.Equal(t, "redlock.lost", events[0].Name)
		assert.Empty(t, r.take("redlock.acquire")[0].Events())
	})
}

// TestLossAfterTheCallersSpanIsASpan: a lock can outlive the span of the request that acquired it.
func TestLossAfterTheCallersSpanIsASpan(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		ctx, caller := r.tracer.Tracer("test").Start(t.Context(), "caller")
		lock, err := r.Acquire(ctx, "x")
		require.NoError(t, err)
		caller.End()
		<-lock.Context().Done()
		time.Sleep(rtt)
		spans := r.take("redlock.lost")
		require.Len(t, spans, 1)
		assert.Equal(t, caller.SpanContext().SpanID(), spans[0].Parent().SpanID())
		assert.Equal(t, sdktrace.Status{Code: codes.Error, Description: "lost"}, spans[0].Status())
		assert.Equal(t, map[string]any{"redlock.name": "x", "error.type": "lost"}, attributes(spans[0]))

		unsampled := trace.ContextWithSpanContext(t.Context(), caller.SpanContext().WithTraceFlags(0))
		lock, err = r.Acquire(unsampled, "x")
		require.NoError(t, err)
		<-lock.Context().Done()
		time.Sleep(rtt)
		assert.Len(t, r.take("redlock.lost"), 1)
	})
}

// TestLongWaitMakesALimitedTrace: hours of tries would otherwise make too many spans.
func TestLongWaitMakesALimitedTrace(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		for _, s := range r.world.Servers() {
			s.Set("x", "another", protocol.NoTTL)
		}
		_, err := r.Acquire(t.Context(), "x", redlock.Retries(100))
		require.ErrorIs(t, err, redlock.ErrHeld)
		time.Sleep(time.Second)
		acquire := r.take("redlock.acquire")[0]
		assert.Len(t, below(r.take("redlock.vote"), acquire), 128)
		attrs := attributes(acquire)
		assert.Equal(t, int64(101), attrs["redlock.attempts"])
		assert.Greater(t, attrs["redlock.votes_omitted"], int64(101*4-128))
	})
}

// dropAcquisitions is a sampler that drops only acquisitions.
type dropAcquisitions struct{ sdktrace.Sampler }

func (d dropAcquisitions) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	if p.Name == "redlock.acquire" {
		return sdktrace.NeverSample().ShouldSample(p)
	}
	return d.Sampler.ShouldSample(p)
}

// TestUnsampledAcquisitionHasNoVotes: the spans of votes would have no parent.
func TestUnsampledAcquisitionHasNoVotes(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	p := sdktrace.NewTracerProvider(sdktrace.WithSampler(dropAcquisitions{sdktrace.AlwaysSample()}), sdktrace.WithSpanProcessor(spans))
	simulate(t, func(t *testing.T, r *rig) {
		require.NoError(t, r.Do(t.Context(), "x", func(context.Context) error { return nil }))
		time.Sleep(8 * leg)
		assert.Empty(t, spans.Started())
	}, redlockotel.WithTracerProvider(p))
}

// TestNodesAreNamedWithTheirAddress: this requires an address in the name, which may contain any
// bytes.
func TestNodesAreNamedWithTheirAddress(t *testing.T) {
	simulate(t, func(t *testing.T, r *rig) {
		o, err := redlockotel.New(redlockotel.WithTracerProvider(r.tracer))
		require.NoError(t, err)
		for node, want := range map[string][]attribute.KeyValue{
			"10.0.0.1:6379":   {attribute.String("server.address", "10.0.0.1"), attribute.Int64("server.port", 6379)},
			"10.0.0.1:6379/2": {attribute.String("server.address", "10.0.0.1"), attribute.Int64("server.port", 6379)},
			"[::1]:6379":      {attribute.String("server.address", "::1"), attribute.Int64("server.port", 6379)},
			"/run/redis.sock": {attribute.String("server.address", "/run/redis.sock")},
			"some server":     {attribute.String("server.address", "some server")},
			"a:b\xff":         {attribute.String("server.address", "a:b\uFFFD")},
		} {
			r.spans.Reset()
			ctx := o.Start(t.Context(), "x")
			o.Observe(redlock.Event{Kind: redlock.EventVote, Context: ctx, Op: protocol.OpAcquire, Node: node, Outcome: protocol.Granted})
			attrs := r.take("redlock.vote")[0].Attributes()
			for _, a := range want {
				assert.Contains(t, attrs, a)
			}
			if len(want) == 1 {
				assert.NotContains(t, attributes(r.take("redlock.vote")[0]), "server.port")
			}
		}
	})
}
