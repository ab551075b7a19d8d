package redlockgrpc_test

import (
	"context"
	"fmt"
	"log"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	redlockgrpc "github.com/redquorum/redquorum/contrib/grpc"
	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
)

var infoOfStream = &grpc.StreamServerInfo{FullMethod: "/shop.Orders/Watch"}

func newServer(locker *redlock.Locker) (*grpc.Server, error) {
	serialise, err := redlockgrpc.New(locker, func(_ context.Context, _ string, request any) (string, error) {
		if r, ok := request.(interface{ GetService() string }); ok {
			return "service:" + r.GetService(), nil
		}
		return "", redlockgrpc.ErrSkip // the call needs no lock
	}, redlockgrpc.Wait(8*time.Second)) // default: one try
	if err != nil {
		return nil, err
	}
	return grpc.NewServer(
		grpc.ChainUnaryInterceptor(serialise.Unary), // after the interceptor that checks the rights of the caller
		grpc.ChainStreamInterceptor(serialise.Stream),
	), nil
}

func Example() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()
	server, err := newServer(locker)
	if err != nil {
		log.Fatal(err)
	}
	checks := health.NewServer() // stands for the program's own services
	checks.SetServingStatus("billing", grpc_health_v1.HealthCheckResponse_SERVING)
	grpc_health_v1.RegisterHealthServer(server, checks)
	listener := bufconn.Listen(1 << 16)
	go server.Serve(listener)
	defer server.Stop()
	client, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return listener.Dial() }))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	ctx := context.Background()
	check := func() {
		answer, err := grpc_health_v1.NewHealthClient(client).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "billing"})
		fmt.Println(answer.GetStatus(), status.Code(err))
	}
	check()
	lock, err := locker.TryAcquire(ctx, "service:billing") // stands for another call
	if err != nil {
		log.Fatal(err)
	}
	check()
	lock.Release(ctx)
	check()
	// Output:
	// SERVING OK
	// UNKNOWN Aborted
	// SERVING OK
}
