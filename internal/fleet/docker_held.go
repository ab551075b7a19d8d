package fleet

import (
	"context"
	"fmt"
)

// held drives containers that can be cut off the network. Each node is two of
// them: a holder, which owns the node's address and runs nothing that
// anybody could talk to, and the server, which lives in the holder's network
// namespace. So the address outlives the server, and a client sees what it would
// see of a killed process on a living machine: its connections reset and new
// ones refused. With the server alone, a kill would take the address along, and
// look like a network cut.
type held struct {
	*docker
}

func (h *held) launch(ctx context.Context, i, _ int) error {
	n := h.nodes[i]
	n.addr = h.net.addr(i)
	n.url = fmt.Sprintf("redis://%s:6379", n.addr)
	opts := h.serverContainer(i)
	opts.Name += "-holder"
	// A server without a port is the one idle program that every such image has.
	// It needs some socket, or it ends at once.
	opts.Config.Cmd = []string{"redis-server", "--port", "0", "--unixsocket", "/tmp/holder.sock", "--save", ""}
	opts.Config.ExposedPorts, opts.HostConfig.PortBindings = nil, nil
	opts.NetworkingConfig = h.net.endpoint(n.addr)
	var err error
	if n.holder, err = h.create(ctx, opts); err != nil {
		return err
	}
	if err := h.engine.StartContainerWithContext(n.holder, nil, ctx); err != nil {
		return err
	}
	return h.start(ctx, i, Lost)
}

func (h *held) disconnect(_ context.Context, i int) error {
	return h.net.disconnect(h.nodes[i].holder)
}

func (h *held) reconnect(ctx context.Context, i int) error {
	return h.net.connect(ctx, h.nodes[i].holder, h.nodes[i].addr)
}
