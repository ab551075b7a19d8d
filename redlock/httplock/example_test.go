package httplock_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	"github.com/redquorum/redquorum/internal/sim"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

// An order is paid by one request at a time. A second request that arrives in the meantime gets 423
// Locked.
func Example() {
	locker, closeAll := sim.ExampleLocker()
	defer closeAll()

	serialise, err := httplock.New(locker,
		func(r *http.Request) (string, error) { return "order:" + r.PathValue("id"), nil },
		httplock.Lock(redlock.Fenced()),
	)
	if err != nil {
		log.Fatal(err)
	}
	atWork, finish := make(chan struct{}), make(chan struct{})
	pay := func(w http.ResponseWriter, r *http.Request) {
		lock, _ := httplock.FromContext(r.Context())
		close(atWork)
		<-finish
		fmt.Fprintf(w, "paid under %s, fenced: %t", lock.Name(), lock.Fence() > 0)
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", serialise(http.HandlerFunc(pay)))
	server := httptest.NewServer(mux)
	defer server.Close()

	post := func() {
		answer, err := server.Client().Post(server.URL+"/orders/42/pay", "", nil)
		if err != nil {
			log.Fatal(err)
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		fmt.Println(answer.Status, answer.Header.Get("Content-Type"))
		fmt.Println(string(body))
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		post()
	}()
	<-atWork
	post()
	close(finish)
	<-done
	// Output:
	// 423 Locked application/problem+json
	// {"type":"about:blank","title":"Locked","status":423,"detail":"Another request is working on this. Try again later."}
	//
	// 200 OK text/plain; charset=utf-8
	// paid under order:42, fenced: true
}
