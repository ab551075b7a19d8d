package redlockotel_test

import (
	"context"
	"fmt"
	"log"

	"go.opentelemetry.io/otel"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	redlockotel "github.com/redquorum/redquorum/contrib/otel"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func openLocker(servers []string) (*redlock.Locker, error) {
	telemetry, err := redlockotel.New() // after otel.SetTracerProvider and otel.SetMeterProvider
	if err != nil {
		return nil, err
	}
	nodes, err := pool.Open(servers...)
	if err != nil {
		return nil, err
	}
	return redlock.New(nodes, redlock.Observe(telemetry))
}

func Example() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3}) // Redis servers in this process
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	spans := tracetest.NewSpanRecorder() // stands for an exporter
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))

	locker, err := openLocker(servers.URLs())
	if err != nil {
		log.Fatal(err)
	}
	_, err = locker.TryAcquire(context.Background(), "invoice:42")
	fmt.Println(err != nil) // because these servers are new, and could have forgotten locks
	locker.Close()

	for _, s := range spans.Ended() {
		if s.Name() == "redlock.acquire" {
			fmt.Println(s.Name(), s.Attributes()[0].Value.AsString(), s.Status().Description)
		}
	}
	// Output:
	// true
	// redlock.acquire invoice:42 no_quorum
}
