package serve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"syscall"
	"time"
)

// A caller is the client behind a request, as its connection shows it. A client may shut down its writing
// side behind the request, and still read the answer:
//
//	sends ──shuts down its writing side──▶ reads only ──closes, or is reset──▶ has left
//
// net/http ends a request's context at the first of the two. Over a Unix socket the kernel tells them apart.
// Over TCP both are a FIN, and a client that has left shows itself by the reset that answers what is sent to
// it. So requests for locks go on until the client has left for certain (present), and what keeps a session
// alive, or only waits for news, ends with sending.
type caller struct {
	sending context.Context // ends when the client sends no more
	wire    *wire           // nil where only sending is known
	writer  http.ResponseWriter
	request *http.Request
}

// A wire is the socket of a connection.
type wire struct {
	net.Conn
	raw   syscall.RawConn
	isTCP bool
	peer  string // which process has connected, of this machine
}

type (
	wireKey   struct{} // where the context of a connection has its wire
	callerKey struct{} // where the context of a request has its caller
)

// ConnContext notes the socket of a connection, and which process of this machine is behind it. It is for
// the field of that name of http.Server.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	w := &wire{Conn: c}
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok { // of TLS
		c = secure.NetConn()
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return ctx
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return ctx
	}
	w.raw = raw
	switch c.(type) {
	case *net.UnixConn:
		w.peer = peerOf(raw)
	case *net.TCPConn:
		w.isTCP = true
	}
	return context.WithValue(ctx, wireKey{}, w)
}

// withCaller returns the request with a context that ends when the client has left. The caller calls stop
// when the request is answered.
func withCaller(w http.ResponseWriter, r *http.Request) (_ *http.Request, stop func()) {
	c := &caller{sending: r.Context(), writer: w, request: r}
	wire, ok := r.Context().Value(wireKey{}).(*wire)
	if !ok || !tellsHalfClose {
		return r, func() {}
	}
	c.wire = wire
	present, leave := context.WithCancel(context.WithoutCancel(c.sending))
	watched := make(chan struct{})
	unwatched := context.AfterFunc(c.sending, func() { // nothing else reads from now on: net/http has seen the end
		defer close(watched)
		if wire.awaitEnd() {
			leave()
		}
	})
	return r.WithContext(context.WithValue(present, callerKey{}, c)), func() {
		if !unwatched() {
			wire.SetReadDeadline(time.Unix(1, 0))
			<-watched
			wire.SetReadDeadline(time.Time{})
		}
		leave()
	}
}

// callerOf returns the client behind a request.
func callerOf(r *http.Request) *caller {
	if c, ok := r.Context().Value(callerKey{}).(*caller); ok {
		return c
	}
	return &caller{sending: r.Context()}
}

// isThere reports whether the client is still there. Over TCP one that sends no more is asked for a sign, which
// HTTP/1.0 has none for.
func (c *caller) isThere() bool {
	switch {
	case c.wire == nil:
		return c.sending.Err() == nil
	case !c.wire.is(isShut):
		return true
	case !c.wire.isTCP:
		return !c.wire.is(isOver)
	case !c.request.ProtoAtLeast(1, 1):
		return false
	}
	within(c.writer, answerWithin)
	c.writer.WriteHeader(http.StatusContinue) // which a client that has not asked for it leaves aside
	taken, _ := c.wire.isTaken()
	return taken
}

// hasMissed reports whether the answer will certainly not reach a client that sends no more. Of others it is
// not asked, and one that is only slow, or stopped, may still read it.
func (c *caller) hasMissed() bool {
	if c.wire == nil || !c.wire.is(isShut) {
		return false
	}
	if http.NewResponseController(c.writer).Flush() != nil {
		return true
	}
	_, failed := c.wire.isTaken()
	return failed
}

// is returns what a look at the socket says now, which may be before net/http has seen it.
func (w *wire) is(what func(fd uintptr) bool) (yes bool) {
	err := w.raw.Control(func(fd uintptr) { yes = what(fd) })
	return yes || err != nil
}

// awaitEnd returns true when the other side has closed the connection, or reset it, and false at a read
// deadline.
func (w *wire) awaitEnd() bool {
	err := w.raw.Read(isOver)
	var slow net.Error
	return !errors.As(err, &slow) || !slow.Timeout()
}

// isTaken waits until the other side has taken all that was sent, or the connection has failed before. If
// neither is known in time, the other side may still take it.
func (w *wire) isTaken() (taken, failed bool) {
	pause := time.Millisecond
	for end := time.Now().Add(answerWithin); time.Now().Before(end); pause = min(2*pause, 50*time.Millisecond) {
		var left int
		var isReset bool
		err := w.raw.Control(func(fd uintptr) { left, isReset = unsent(fd) })
		switch {
		case err != nil: // closed by this side: what it sent is still on its way
			return false, false
		case isReset && (left > 0 || !w.isTCP):
			return false, true
		case left == 0: // over TCP a client may have read it all, and then reset the connection
			return true, false
		}
		time.Sleep(pause)
	}
	return false, false
}
