package serve

import (
	"context"
	"net"
)

// peerKey is the context key of the process that opened a connection.
type peerKey struct{}

// ConnContext notes which process of this machine is behind a connection over a Unix socket. It is
// for the field ConnContext of http.Server.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(interface{ NetConn() net.Conn }); ok { // of TLS
		c = secure.NetConn()
	}
	socket, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, peerOf(raw))
}
