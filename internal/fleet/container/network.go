package container

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	dc "github.com/ory/dockertest/v3/docker"
)

// network is a bridge network that belongs to one fleet.
type network struct {
	engine  *dc.Client
	id      string
	subnet  netip.Prefix
	gateway netip.Addr // the engine's own address on the bridge
}

// subnetTries bounds how often another network may take the subnet between the two.
const subnetTries = 10

// createNetwork makes a network with a subnet that is free on the engine's machine. Fixed
// addresses need a subnet that was asked for, but only the engine knows which are free. So the
// engine chooses one for a first network, and the second is asked for with that.
func createNetwork(ctx context.Context, engine *dc.Client, name string, labels map[string]string) (network, error) {
	opts := dc.CreateNetworkOptions{Name: name, Driver: "bridge", Labels: labels, CheckDuplicate: true, Context: ctx}
	var err error
	for range subnetTries {
		var probe, n network
		if probe, err = createOnce(engine, opts); err != nil {
			return network{}, err
		}
		if err = probe.remove(); err != nil {
			return network{}, err
		}
		chosen := opts
		chosen.IPAM = &dc.IPAMOptions{Config: []dc.IPAMConfig{{Subnet: probe.subnet.String()}}}
		if n, err = createOnce(engine, chosen); err == nil {
			return n, nil
		}
		if !strings.Contains(err.Error(), "overlap") {
			break
		}
	}
	return network{}, err
}

func createOnce(engine *dc.Client, opts dc.CreateNetworkOptions) (network, error) {
	created, err := engine.CreateNetwork(opts)
	if err != nil {
		return network{}, fmt.Errorf("create network %s: %w", opts.Name, err)
	}
	n := network{engine: engine, id: created.ID}
	if err := n.inspect(); err != nil {
		return network{}, errors.Join(fmt.Errorf("inspect network %s: %w", opts.Name, err), n.remove())
	}
	return n, nil
}

func (n *network) inspect() error {
	info, err := n.engine.NetworkInfo(n.id)
	if err != nil {
		return err
	}
	for _, c := range info.IPAM.Config {
		subnet, err := netip.ParsePrefix(c.Subnet)
		if err != nil || !subnet.Addr().Is4() {
			continue
		}
		n.subnet = subnet
		n.gateway, err = netip.ParseAddr(c.Gateway)
		if err != nil {
			n.gateway = subnet.Masked().Addr().Next() // the engine's choice where it does not say
		}
		return nil
	}
	return errors.New("it has no IPv4 subnet")
}

// isLocal reports whether the bridge is an interface of this machine, so that
// containers can be reached at their own addresses.
func (n *network) isLocal() bool {
	addrs, _ := net.InterfaceAddrs()
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr() == n.gateway {
			return true
		}
	}
	return false
}

// addr returns node i's address. The gateway has the first.
func (n *network) addr(i int) netip.Addr {
	a := n.subnet.Masked().Addr()
	for range 2 + i {
		a = a.Next()
	}
	return a
}

func endpoint(addr netip.Addr) *dc.EndpointConfig {
	return &dc.EndpointConfig{IPAMConfig: &dc.EndpointIPAMConfig{IPv4Address: addr.String()}}
}

func (n *network) connect(ctx context.Context, container string, addr netip.Addr) error {
	return n.engine.ConnectNetwork(n.id, dc.NetworkConnectionOptions{
		Container: container, EndpointConfig: endpoint(addr), Context: ctx,
	})
}

func (n *network) disconnect(container string) error {
	return n.engine.DisconnectNetwork(n.id, dc.NetworkConnectionOptions{Container: container})
}

func (n *network) remove() error {
	err := n.engine.RemoveNetwork(n.id)
	if gone := (*dc.NoSuchNetwork)(nil); errors.As(err, &gone) {
		return nil
	}
	return err
}
