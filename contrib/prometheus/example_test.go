package redlockprom_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	redlockprom "github.com/redquorum/redquorum/contrib/prometheus"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

func openLocker(servers []string) (*redlock.Locker, error) {
	metrics, err := redlockprom.New(prometheus.DefaultRegisterer)
	if err != nil {
		return nil, err
	}
	nodes, err := pool.Open(servers...)
	if err != nil {
		return nil, err
	}
	http.Handle("/metrics", promhttp.Handler())
	return redlock.New(nodes, redlock.Observe(metrics))
}

func Example() {
	servers, err := fleet.Start(context.Background(), fleet.Embedded, fleet.Options{Nodes: 3}) // Redis servers in this process
	if err != nil {
		log.Fatal(err)
	}
	defer servers.Close()
	locker, err := openLocker(servers.URLs())
	if err != nil {
		log.Fatal(err)
	}
	defer locker.Close()

	_, err = locker.TryAcquire(context.Background(), "invoice:42")
	fmt.Println(errors.Is(err, redlock.ErrNoQuorum)) // because these servers are new, and could have forgotten locks
	families, err := prometheus.DefaultGatherer.Gather()
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "redlock_acquisitions_total" {
			for _, m := range f.GetMetric() {
				fmt.Println(m.GetLabel()[0].GetValue(), m.GetCounter().GetValue())
			}
		}
	}
	// Output:
	// true
	// acquired 0
	// canceled 0
	// closed 0
	// held 0
	// no_quorum 1
	// other 0
	// timeout 0
}
