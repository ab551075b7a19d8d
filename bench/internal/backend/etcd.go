package backend

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
)

// etcd is members of one etcd cluster, with its defaults: a heartbeat every 100 ms, an election
// after a second of silence.
type etcd struct{ sync bool }

func (etcd) name() string { return "etcd" }

var versionOfEtcd = regexp.MustCompile(`(?m)^etcd Version: (\S+)`)

func (etcd) version() (string, error) {
	text, err := exec.Command("etcd", "--version").Output()
	found := versionOfEtcd.FindSubmatch(text)
	if err != nil || found == nil {
		return "", fmt.Errorf("there is no etcd on PATH that tells its version; install it, with Debian as etcd-server (%v)", err)
	}
	return string(found[1]), nil
}

func (etcd) ports() int                { return 2 }
func (etcd) prepare([]node, int) error { return nil }

func (e etcd) command(all []node, i int) *exec.Cmd {
	named := func(i int) string { return fmt.Sprintf("member-%d", i+1) }
	var members []string
	for j, n := range all {
		members = append(members, named(j)+"=http://"+n.listens(1))
	}
	clients, peers := "http://"+all[i].listens(0), "http://"+all[i].listens(1)
	cmd := exec.Command("etcd", "--name", named(i), "--data-dir", "data",
		"--listen-client-urls", clients, "--advertise-client-urls", clients,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers,
		"--initial-cluster", strings.Join(members, ","), "--logger", "zap", "--log-level", "error")
	if !e.sync {
		cmd.Args = append(cmd.Args, "--unsafe-no-fsync")
	}
	return cmd
}

func (etcd) end(p *os.Process) error { return p.Kill() }

// leads asks the member over HTTP. /health is answered well only when a read through the quorum is.
func (etcd) leads(ctx context.Context, n node) (bool, error) {
	if _, err := ask(ctx, http.MethodGet, "http://"+n.address()+"/health"); err != nil {
		return false, err
	}
	text, err := ask(ctx, http.MethodPost, "http://"+n.address()+"/v3/maintenance/status")
	if err != nil {
		return false, err
	}
	var status struct {
		Leader string
		Header struct {
			Member string `json:"member_id"`
		}
	}
	if err := json.Unmarshal(text, &status); err != nil || status.Header.Member == "" {
		return false, fmt.Errorf("etcd: its status cannot be read: %q (%v)", text, err)
	}
	return status.Leader == status.Header.Member, nil
}

func ask(ctx context.Context, method, url string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader("{}"))
	if err != nil {
		return nil, err
	}
	r.Close = true // a kept connection would outlive the member
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, answer.Status)
	}
	return text, err
}
