// Command handler runs HTTP requests for one order one at a time, on all instances of a server.
//
// A shop runs on two instances, north and south. If a customer pays for an order while another
// request pays for it, the customer is asked to try again later; the back office waits instead. An
// instance that is cut off from the lock's servers answers with an error. A payment that loses its
// lock is cancelled. If it is booked nevertheless, its fencing token is rejected.
//
// Copy Cashier and Ledger. The rest simulates customers.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/examples/internal/stage"
	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/httplock"
)

func main() { stage.Main(story) }

// A Cashier takes payments. Every instance has one. All of them together take one payment at a time
// for an order.
type Cashier struct {
	Locker *redlock.Locker
	Ledger *Ledger // shared by all instances

	// Charge calls the payment provider, and should return soon after ctx has ended. It must use
	// the order as its idempotency key: a payment that loses its lock may have charged already, and
	// the next payment charges again.
	Charge func(ctx context.Context, order string) error
}

// Handler refuses customers immediately while an order is being paid for, and makes the back office
// wait. Check the user's rights before it, because a request takes the lock named by its URL.
func (c *Cashier) Handler() (http.Handler, error) {
	// The name begins with its kind, so that an order and an invoice with the same number have
	// different locks.
	name := func(r *http.Request) (string, error) { return "order:" + r.PathValue("id"), nil }
	fenced := httplock.Lock(redlock.Fenced())
	atOnce, err := httplock.New(c.Locker, name, fenced)
	if err != nil {
		return nil, err
	}
	waiting, err := httplock.New(c.Locker, name, fenced, httplock.Wait(10*time.Second))
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("POST /orders/{id}/pay", atOnce(http.HandlerFunc(c.pay)))
	mux.Handle("POST /office/orders/{id}/pay", waiting(http.HandlerFunc(c.pay)))
	return mux, nil
}

func (c *Cashier) pay(w http.ResponseWriter, r *http.Request) {
	order := r.PathValue("id")
	lock, _ := httplock.FromContext(r.Context())

	// A request that waited for the lock waited for another payment, so check first.
	paid, err := c.Ledger.Paid(order, lock.Fence())
	if paid {
		fmt.Fprintf(w, "order %s was paid before\n", order)
		return
	}
	if err == nil {
		err = c.Charge(r.Context(), order) // ctx ends with the lock
	}
	if err == nil {
		// The lock may have ended. Checking that here would not help, because it can also end
		// between the check and the booking. The ledger compares the token instead.
		err = c.Ledger.Book(order, lock.Fence())
	}
	switch {
	case err == nil:
		fmt.Fprintf(w, "order %s is paid\n", order)
	case errors.Is(err, fence.ErrStale):
		http.Error(w, "Another request has taken over. Check whether the order is paid.", http.StatusConflict)
	case r.Context().Err() != nil: // the lock is lost, or the client has disconnected
		httplock.ProblemOf(context.Cause(r.Context())).ServeHTTP(w, r) // 503, with Retry-After
	default:
		http.Error(w, "The payment has failed.", http.StatusBadGateway)
	}
}

// A Ledger records paid orders. Its callers pass the token of their lock, and fail if a higher
// token was passed before. It stands for the shop's database, where the token is one more column:
// see examples/sqlfence. The zero value is ready to use.
type Ledger struct {
	gate fence.Gate
	paid sync.Map
}

// Paid reports whether the order is paid. It announces the token, so that a payment with a lower
// token cannot be booked afterwards.
func (l *Ledger) Paid(order string, token int64) (paid bool, err error) {
	err = l.gate.Do(order, token, func() error {
		_, paid = l.paid.Load(order)
		return nil
	})
	return paid, err
}

// Book records that the order is paid. Its error matches fence.ErrStale if the caller is late.
func (l *Ledger) Book(order string, token int64) error {
	return l.gate.Do(order, token, func() error {
		l.paid.Store(order, true)
		return nil
	})
}

// An instance is one HTTP server of the shop, on its own machine.
type instance struct {
	*httptest.Server
	locker  *redlock.Locker
	charges chan charge // charges requested by the instance's cashier
}

// A charge waits for an answer from the story.
type charge struct {
	ctx    context.Context
	answer chan error
}

// ttl is the time for which an order stays locked if its instance vanishes.
var ttl = 2 * time.Second

// open starts an instance.
func open(ledger *Ledger, urls []string) (*instance, error) {
	nodes, err := pool.Open(urls...)
	if err != nil {
		return nil, err
	}
	in := &instance{charges: make(chan charge)}
	in.locker, err = redlock.New(nodes,
		redlock.Prefix("example:handler:"), // separates the example from other keys on the servers
		redlock.TTL(ttl),
		redlock.NodeTimeout(ttl*3/4), // the whole example runs on one machine, which may be busy
		redlock.MemoryGuard(false),   // otherwise new servers would have no vote for a TTL; a real shop leaves it on
	)
	if err != nil {
		return nil, err
	}
	handler, err := (&Cashier{Locker: in.locker, Ledger: ledger, Charge: in.charge}).Handler()
	if err != nil {
		return nil, err
	}
	in.Server = httptest.NewServer(handler)
	return in, nil
}

func (in *instance) close() {
	in.Close()
	in.locker.Close()
}

// charge ignores ctx, because the story decides whether it was cancelled in time.
func (in *instance) charge(ctx context.Context, _ string) error {
	c := charge{ctx, make(chan error, 1)}
	in.charges <- c
	return <-c.answer
}

// pay sends a request, and returns the reply.
func (in *instance) pay(path string) string {
	response, err := in.Client().Post(in.URL+path+"/pay", "", nil)
	if err != nil {
		return err.Error()
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	if response.StatusCode == http.StatusOK {
		return "200, " + strings.TrimSpace(string(body))
	}
	return response.Status
}

// start sends a request, and returns when the request has called the payment provider. If the
// request ends without a call, start returns its reply and a charge that has ended.
func (in *instance) start(path string) (charge, <-chan string) {
	reply := make(chan string, 1)
	go func() { reply <- in.pay(path) }()
	select {
	case c := <-in.charges:
		return c, reply
	case r := <-reply:
		reply <- r
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		return charge{ended, make(chan error, 1)}, reply
	}
}

func story(_ context.Context, out io.Writer, urls []string) error {
	machines, stop, err := stage.Machines(urls, "north", "south")
	if err != nil {
		return err
	}
	defer stop()
	var ledger Ledger
	north, err := open(&ledger, machines[0].URLs)
	if err != nil {
		return err
	}
	defer north.close()
	south, err := open(&ledger, machines[1].URLs)
	if err != nil {
		return err
	}
	defer south.close()
	var wrong error
	show := func(what, got, want string) {
		fmt.Fprintf(out, "  %-30s %s\n", what, got)
		if got != want {
			wrong = errors.Join(wrong, fmt.Errorf("%s: want %q, got %q", what, want, got))
		}
	}

	fmt.Fprintln(out, "two customers pay for order 42 at the same time, and so does the back office:")
	first, paid := north.start("/orders/42")
	show("another customer, at south:", south.pay("/orders/42"), "423 Locked")
	waited := make(chan string)
	go func() { waited <- south.pay("/office/orders/42") }()
	first.answer <- nil
	show("the customer at north:", <-paid, "200, order 42 is paid")
	show("the back office:", <-waited, "200, order 42 was paid before")

	fmt.Fprintln(out, "north is cut off from the lock's servers while it takes payments for orders 43 and 44:")
	prompt, stopped := north.start("/orders/43")
	slow, late := north.start("/orders/44")
	machines[0].Cut()
	for _, c := range []charge{prompt, slow} {
		<-c.ctx.Done()
	}
	prompt.answer <- prompt.ctx.Err()
	show("43, cancelled with its lock:", <-stopped, "503 Service Unavailable")
	show("another order, at north:", north.pay("/orders/45"), "503 Service Unavailable")
	next, booked := south.start("/office/orders/44") // after the old lock has expired
	next.answer <- nil
	show("44, at south:", <-booked, "200, order 44 is paid")
	slow.answer <- nil // charges only once, because the order is the idempotency key
	show("44, at north, too late:", <-late, "409 Conflict")
	return wrong
}
