package backend

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// postgreSQL is one server with its defaults. Advisory locks are in its memory alone.
type postgreSQL struct{}

func (postgreSQL) name() string { return "postgresql" }

// MostConnections is how many sessions there may be, and so how many locks are held at a time.
const MostConnections = 1000

// postgresPrograms is the folder of initdb and postgres, which Debian keeps from PATH.
func postgresPrograms() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		return "", fmt.Errorf("PostgreSQL is not here; install Debian's package postgresql")
	}
	slices.SortFunc(found, func(a, b string) int { return major(a) - major(b) })
	return filepath.Dir(found[len(found)-1]), nil
}

// major is the 15 of /usr/lib/postgresql/15/bin/initdb.
func major(path string) int {
	n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
	return n
}

func (postgreSQL) version() (string, error) {
	programs, err := postgresPrograms()
	if err != nil {
		return "", err
	}
	text, err := exec.Command(filepath.Join(programs, "postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("postgres --version: %w", err)
	}
	// "postgres (PostgreSQL) 15.18 (Debian ...)"
	words := strings.Fields(string(text))
	if len(words) < 3 {
		return "", fmt.Errorf("postgres --version: %q is not a version", text)
	}
	return words[2], nil
}

func (postgreSQL) ports() int { return 1 }

func (postgreSQL) prepare(all []node, i int) error {
	programs, err := postgresPrograms()
	if err != nil {
		return err
	}
	dir := all[i].dir
	init := exec.Command(filepath.Join(programs, "initdb"), "-D", "data", "-U", "bench", "-A", "trust",
		"--no-sync", "--locale=C", "-E", "UTF8")
	init.Dir = dir
	if err := unprivileged(init, dir); err != nil {
		return err
	}
	if text, err := init.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, strings.TrimSpace(string(text)))
	}
	return nil
}

func (postgreSQL) command(all []node, i int) *exec.Cmd {
	programs, _ := postgresPrograms() // prepare has used them
	cmd := exec.Command(filepath.Join(programs, "postgres"), "-D", "data", "-p", strconv.Itoa(all[i].ports[0]),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=",
		"-c", fmt.Sprintf("max_connections=%d", MostConnections))
	cmd.Dir = all[i].dir
	_ = unprivileged(cmd, all[i].dir) // prepare has done so
	return cmd
}

// end is its own way to end at once and recover at the next start. Killed, the server would leave
// its other processes behind for a moment, and they would keep it from starting.
func (postgreSQL) end(p *os.Process) error { return p.Signal(syscall.SIGQUIT) }

func (postgreSQL) leads(ctx context.Context, n node) (bool, error) {
	c, err := pgconn.Connect(ctx, PostgresURL(n.address()))
	if err != nil {
		return false, err
	}
	return true, c.Close(ctx)
}

// PostgresURL is how clients connect to a server of this package.
func PostgresURL(address string) string {
	return "postgres://bench@" + address + "/postgres?sslmode=disable"
}
