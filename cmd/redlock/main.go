// Command redlock takes quorum locks from a shell, shows their holders, and checks their servers.
// This package contains its commands and their flags. Each command has a file with its name.
// Package cmd/redlock/internal/job runs jobs, cmd/redlock/internal/demo plays the demo, and
// cmd/redlock/internal/doctor has the checks of doctor. servers.go and config.go contain the flags
// that most commands share, exit.go the exit codes.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	_ "time/tzdata" // for machines and images without a database of time zones

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/cmd/redlock/internal/job"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
)

func main() {
	os.Exit(run(interruptible(), os.Args[1:], os.Stdout, os.Stderr))
}

// interruptible returns a context that ends, with a job.SignalError as its cause, when a person or
// a supervisor sends a signal to end the command. A signal that was ignored when the command
// started stays ignored, because nohup(1) and a shell's background jobs rely on that.
func interruptible() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	hangups, others := endingSignals()
	go func() {
		for {
			var s os.Signal
			select {
			case s = <-hangups:
				if reload, is := onHangup.Load().(func()); is {
					reload()
					continue
				}
			case s = <-others:
			}
			by := job.SignalError{Signal: s.(syscall.Signal)}
			if cancel(by); reread.IsFirst() {
				fmt.Fprintln(os.Stderr, "redlock: "+by.Error())
				os.Exit(job.SignalCode(by.Signal))
			}
		}
	}()
	return ctx
}

// endingSignals returns channels for SIGHUP and for the other signals that end a command. A signal is
// dropped if its channel is full, and several hangups must not take the room of the other signals.
func endingSignals() (hangups, others chan os.Signal) {
	hangups, others = make(chan os.Signal, 1), make(chan os.Signal, 1)
	for _, s := range job.EndingSignals {
		switch {
		case signal.Ignored(s):
		case s == syscall.SIGHUP:
			signal.Notify(hangups, s)
		default:
			signal.Notify(others, s)
		}
	}
	return hangups, others
}

// run runs the command in this process, and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(append([]string{}, withInterval(args)...)) // nil would mean the arguments of the process
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = knownTopic
	root.InitDefaultCompletionCmd(args...)
	if completion, _, err := root.Find([]string{"completion"}); err == nil {
		completion.Args, completion.RunE = noCommand, func(c *cobra.Command, _ []string) error { return c.Help() }
		for _, shell := range completion.Commands() {
			shell.Args = noArguments
		}
	}
	if len(args) > 0 && strings.HasPrefix(args[0], cobra.ShellCompRequestCmd) {
		forCompletion(root)
	}
	unwritten := checkHelp(root)
	err := root.ExecuteContext(ctx)
	err = cmp.Or(err, *unwritten)
	if why := explain(ctx, err); why != "" {
		fmt.Fprintln(stderr, "redlock: "+why)
	}
	return exitCode(ctx, err)
}

// explain returns the one line that is printed about err, or nothing.
func explain(ctx context.Context, err error) string {
	var exit *exitError
	var by job.SignalError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &exit):
		if exit.err == nil {
			return ""
		}
	case errors.As(context.Cause(ctx), &by):
		return by.Error()
	}
	return plain.OneLine(err.Error())
}

func newRoot() *cobra.Command {
	build, _ := debug.ReadBuildInfo()
	root := &cobra.Command{
		Use:   "redlock",
		Short: "Quorum locks on independent Redis servers",
		Long: `Quorum locks on independent Redis servers (Redlock): run a command under a lock, see who holds
one, and check the servers.

Servers are named by --node, by $REDLOCK_NODES, or in a configuration file, in groups if they are
many; see "redlock help config".`,
		Example: `  redlock demo       # see a lock taken, refused and lost
  redlock nodes      # servers to play with, in another terminal
  export REDLOCK_NODES=redis://10.0.0.1:6379,redis://10.0.0.2:6379,redis://10.0.0.3:6379
  redlock run nightly -- /usr/local/bin/report`,
		Args: noCommand,
		RunE: func(c *cobra.Command, _ []string) error {
			c.SetOut(c.ErrOrStderr())
			c.Help()
			return &exitError{code: exitUsage}
		},
		Version:           versionOf(build),
		SilenceErrors:     true,
		SilenceUsage:      true,
		DisableAutoGenTag: true,
	}
	root.SetUsageTemplate(usageTemplate)
	root.SetGlobalNormalizationFunc(bothSpellings)
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		var value *pflag.InvalidValueError
		var unknown *pflag.NotExistError
		hint, meant := "", ""
		switch {
		case errors.As(err, &value):
			return usageErrorf("--%s: %s", value.GetFlag().Name, notOfType(value.GetFlag(), value.GetValue()))
		case !errors.As(err, &unknown):
		case c.Name() == "run":
			hint = "; put flags of the COMMAND after --: redlock run NAME -- COMMAND; and a NAME that begins with -, too: redlock run -- -NAME -- COMMAND"
		case strings.Contains(c.Use, "NAME"):
			hint = "; put a NAME that begins with - after --: " + c.CommandPath() + " -- -NAME"
		}
		if unknown != nil {
			meant = didYouMean(flagNames(c), unknown.GetSpecifiedName(), "--")
		}
		return usageErrorf("%v%s; see %q%s", err, meant, c.CommandPath()+" --help", hint)
	})
	root.AddCommand(newRun(), newHold(), newServe(), newStatus(), newRelease(), newDoctor(), newReset(), newNodes(), newDemo(), newConfigHelp(), newCronHelp(), newMan(), newVersion())
	offer(root)
	return root
}

// newVersion is --version as a command.
func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version, and the commit that it was built from",
		Args:  noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			return plain.Output(c.OutOrStdout(), c.Root().Name()+" version "+c.Root().Version+"\n")
		},
	}
}

// versionOf returns the version in the build information: a release, or the commit.
func versionOf(info *debug.BuildInfo) string {
	if info == nil || info.Main.Version == "" {
		return "unknown"
	}
	recorded := map[string]string{}
	for _, s := range info.Settings {
		recorded[s.Key] = s.Value
	}
	commit := recorded["vcs.revision"]
	switch {
	case commit == "":
		return info.Main.Version
	case recorded["vcs.modified"] == "true":
		commit += ", modified"
	}
	return info.Main.Version + " (commit " + commit + ")"
}
