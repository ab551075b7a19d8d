package pool

import (
	"io"
	"net"
	"os"
	"syscall"
	"unsafe"
)

// A directConn reads and writes by system calls that Go's scheduler does not hear of. Around each
// other call the scheduler gets ready to give the processor away, in case that the call blocks: its
// monitor wakes every 20 us, and takes the processor from a write that lasts longer, as those do that
// hand a packet to a server of the same machine. A call on a socket that does not block costs more so
// than it can gain: with 64 callers a tenth of all that the client did. Waiting, deadlines and Close
// are those of the net package.
//
// One goroutine may read and one may write at a time.
type directConn struct {
	net.Conn
	raw         syscall.RawConn
	read, write transfer
}

// direct returns c with faster reads and writes. A type of the caller's dial function, which may do
// more than to pass bytes on, is left as it is.
func direct(c net.Conn) net.Conn {
	var raw syscall.RawConn
	var err error
	switch c := c.(type) {
	case *net.TCPConn:
		raw, err = c.SyscallConn()
	case *net.UnixConn:
		raw, err = c.SyscallConn()
	default:
		return c
	}
	if err != nil {
		return c
	}
	d := &directConn{Conn: c, raw: raw}
	d.read.call, d.read.once = syscall.SYS_READ, d.read.try
	d.write.call, d.write.once = syscall.SYS_WRITE, d.write.try
	return d
}

// Read implements net.Conn.
func (d *directConn) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	n, err := d.read.of(p, d.raw.Read)
	switch {
	case err != nil:
		return n, d.explain("read", err)
	case n == 0:
		return 0, io.EOF
	}
	return n, nil
}

// Write implements net.Conn.
func (d *directConn) Write(p []byte) (int, error) {
	for written := 0; ; {
		if written == len(p) {
			return written, nil
		}
		n, err := d.write.of(p[written:], d.raw.Write)
		written += n
		if err != nil {
			return written, d.explain("write", err)
		}
	}
}

// explain makes the error that the net package would have made.
func (d *directConn) explain(op string, err error) error {
	if errno, ok := err.(syscall.Errno); ok {
		return &net.OpError{Op: op, Net: d.LocalAddr().Network(), Source: d.LocalAddr(), Addr: d.RemoteAddr(),
			Err: os.NewSyscallError(op, errno)}
	}
	return err
}

// A transfer is one read or write that is under way.
type transfer struct {
	call uintptr            // its number
	once func(uintptr) bool // try, made once because each would be an allocation

	p   []byte
	n   int
	err error
}

// of transfers up to all of p, which is not empty, when run lets it.
func (t *transfer) of(p []byte, run func(func(uintptr) bool) error) (int, error) {
	t.p, t.n, t.err = p, 0, nil
	if err := run(t.once); err != nil {
		t.err = err
	}
	t.p = nil
	return t.n, t.err
}

// try makes the call, and reports whether it came to an end: it is called again when the socket is
// ready if it did not.
func (t *transfer) try(fd uintptr) bool {
	for {
		n, _, errno := syscall.RawSyscall(t.call, fd, uintptr(unsafe.Pointer(&t.p[0])), uintptr(len(t.p)))
		switch errno {
		case 0:
			t.n = int(n)
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		default:
			t.err = errno
		}
		return true
	}
}
