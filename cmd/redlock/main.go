// Command redlock shows and uses quorum locks from a shell.
//
//	redlock demo [--nodes embedded|process|docker|URL,URL,...] [--json]
//
// Exit codes: 0 as promised, 1 if something was not, 64 for a usage error, 130
// after an interrupt.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

const (
	exitFailed      = 1
	exitUsage       = 64 // EX_USAGE of sysexits.h
	exitInterrupted = 130
)

const usage = `Usage: redlock <command> [flags]

Commands:
  demo    take, refuse, lose and regain a quorum lock on five servers

"redlock <command> --help" tells more.
`

// errUsage is matched by errors that were explained by a usage text.
var errUsage = errors.New("usage")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run is main without the process around it.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	var err error
	switch args[0] {
	case "demo":
		err = demo(ctx, args[1:], stdout, stderr)
	case "help", "-h", "-help", "--help":
		fmt.Fprint(stdout, usage)
	default:
		fmt.Fprintf(stderr, "redlock: unknown command %q; there is: demo\n", args[0])
		return exitUsage
	}
	switch {
	case err == nil:
		return 0
	case errors.Is(err, errUsage):
		return exitUsage
	case ctx.Err() != nil:
		fmt.Fprintln(stderr, "redlock: interrupted")
		return exitInterrupted
	default:
		fmt.Fprintf(stderr, "redlock: %v\n", err)
		return exitFailed
	}
}
