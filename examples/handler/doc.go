// Command handler has HTTP requests that must not overlap run one at a time,
// whichever instance of the server receives them.
//
// A shop runs on two instances. Who pays for an order while somebody else does is
// told to come again; the back office waits instead. An instance that is cut off
// from the lock's servers answers that it cannot work. One that loses the lock in
// the middle of a payment is told so, and if it books the payment all the same, it
// is refused by its fencing token.
//
// cashier.go is what to copy.
package main
