package serve

import (
	"context"
	"net"
)

// peerKey is where the context of a connection has the process that has connected.
type peerKey struct{}

// ConnContext notes which process of this machine is behind a connection over a Unix socket. It is for the field
// of that name of http.Server.
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
