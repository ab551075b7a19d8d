package main

import (
	"context"
	"fmt"
	"net/http"
)

func pay(order string) string    { return "/orders/" + order + "/pay" }
func office(order string) string { return "/office/orders/" + order + "/pay" }

// A rush is what becomes of one order that everybody pays.
type rush struct {
	refused, won, waited reply
}

// rush has two customers pay for an order at the same time, one at each instance,
// and the back office while one of them does.
func (s *shop) rush(ctx context.Context, order string) (r rush, err error) {
	customers := make(chan reply, 2)
	var first *charge
	for first == nil {
		s.send(ctx, s.north, pay(order), customers)
		s.send(ctx, s.south, pay(order), customers)
		// One is refused while the provider keeps the other waiting. If the two have
		// split the votes among them, both are, and come again.
		if r.refused, err = await(ctx, customers); err != nil {
			return r, err
		}
		select {
		case first = <-s.charges:
		case other := <-customers:
			if r.refused.status != http.StatusLocked || other.status != http.StatusLocked {
				return r, fmt.Errorf("nobody could pay: %v, %v", r.refused, other)
			}
		case <-ctx.Done():
			return r, context.Cause(ctx)
		}
	}

	waits := make(chan reply, 1)
	select {
	case <-s.refused: // by the customer who was
	default:
	}
	s.send(ctx, r.refused.from, office(order), waits)
	if _, err := await(ctx, s.refused); err != nil {
		return r, err
	}
	first.answer <- nil
	if r.won, err = await(ctx, customers); err != nil {
		return r, err
	}
	r.waited, err = await(ctx, waits)
	return r, err
}

// A cut is what becomes of two payments under way at an instance that cannot
// reach the lock's servers any more.
type cut struct {
	stopped reply // of the payment that ends with the lock
	late    reply // of the one that was too late to stop
	outage  reply // to who comes to the instance now
	next    reply // to who pays for the late one's order at the other instance
	causes  [2]error
}

func (s *shop) cutOff(ctx context.Context, stopped, late string) (c cut, err error) {
	var charges [2]*charge
	var replies [2]<-chan reply
	for i, order := range []string{stopped, late} {
		if charges[i], replies[i], err = s.begin(ctx, s.north, pay(order)); err != nil {
			return c, err
		}
	}
	s.north.wires.Cut()
	defer s.north.wires.Mend()
	for i, charge := range charges {
		if _, err := await(ctx, charge.ctx.Done()); err != nil {
			return c, err
		}
		c.causes[i] = context.Cause(charge.ctx)
	}

	charges[0].answer <- c.causes[0]
	if c.stopped, err = await(ctx, replies[0]); err != nil {
		return c, err
	}
	c.outage = s.post(ctx, s.north, pay("another"))

	charge, next, err := s.begin(ctx, s.south, office(late)) // when the servers have dropped the old lock
	if err != nil {
		return c, err
	}
	charge.answer <- nil
	if c.next, err = await(ctx, next); err != nil {
		return c, err
	}

	charges[1].answer <- nil // the money is taken, once for both: the order is the idempotency key
	c.late, err = await(ctx, replies[1])
	return c, err
}
