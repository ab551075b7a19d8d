package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// zooKeeper is members of one ZooKeeper ensemble, with the ticks and limits of its sample
// configuration. Only the shortest session is shorter than its default of 4 s, so that the run's
// TTL can be one.
type zooKeeper struct{ sync bool }

func (zooKeeper) name() string { return "zookeeper" }

// Debian's package has the program in a jar whose manifest names what else it needs, and the same
// once more with the version in its name.
const (
	zooKeeperJar  = "/usr/share/java/zookeeper.jar"
	zooKeeperJars = "/usr/share/java/zookeeper-[0-9]*.jar"
)

func (zooKeeper) version() (string, error) {
	_, err := exec.LookPath("java")
	jars, _ := filepath.Glob(zooKeeperJars) // the pattern is right
	if err != nil || len(jars) == 0 {
		return "", errors.New("ZooKeeper is not here; install Debian's package zookeeper")
	}
	version := strings.TrimPrefix(filepath.Base(jars[0]), "zookeeper-")
	return strings.TrimSuffix(version, ".jar"), nil
}

func (zooKeeper) ports() int { return 3 }

const zooKeeperConfig = `tickTime=2000
initLimit=10
syncLimit=5
minSessionTimeout=1000
maxClientCnxns=0
dataDir=data
clientPort=%d
clientPortAddress=127.0.0.1
admin.enableServer=false
4lw.commands.whitelist=srvr
forceSync=%s
`

func (z zooKeeper) prepare(all []node, i int) error {
	n := all[i]
	data := filepath.Join(n.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(data, "myid"), fmt.Append(nil, i+1), 0o600); err != nil {
		return err
	}
	force := map[bool]string{true: "yes", false: "no"}[z.sync]
	config := fmt.Appendf(nil, zooKeeperConfig, n.ports[0], force)
	if len(all) > 1 {
		for j, m := range all {
			config = fmt.Appendf(config, "server.%d=127.0.0.1:%d:%d\n", j+1, m.ports[1], m.ports[2])
		}
	}
	return os.WriteFile(filepath.Join(n.dir, "zoo.cfg"), config, 0o600)
}

func (zooKeeper) command([]node, int) *exec.Cmd {
	return exec.Command("java", "-cp", zooKeeperJar, "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zoo.cfg")
}

func (zooKeeper) end(p *os.Process) error { return p.Kill() }

// leads asks the member by the command srvr.
func (zooKeeper) leads(ctx context.Context, n node) (bool, error) {
	c, err := new(net.Dialer).DialContext(ctx, "tcp", n.address())
	if err != nil {
		return false, err
	}
	defer c.Close()
	if deadline, ok := ctx.Deadline(); ok {
		c.SetDeadline(deadline)
	}
	if _, err := io.WriteString(c, "srvr"); err != nil {
		return false, err
	}
	text, err := io.ReadAll(c)
	if err != nil {
		return false, err
	}
	for line := range strings.Lines(string(text)) {
		if mode, ok := strings.CutPrefix(strings.TrimSpace(line), "Mode: "); ok {
			return mode == "leader" || mode == "standalone", nil
		}
	}
	return false, errors.New("ZooKeeper: " + strings.TrimSpace(string(text)))
}
