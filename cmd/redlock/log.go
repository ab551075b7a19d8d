package main

import (
	"io"
	"log/slog"
	"strconv"

	"github.com/spf13/pflag"
)

// A logging selects the events that a command logs.
type logging struct {
	verbose verbosity
	livesOn bool         // faults of servers are logged; other commands return them as their error
	states  bool         // a reporter prints the state of the lock; votes are logged only with -vv
	log     *slog.Logger // nil: none
}

func (l *logging) addFlags(f *pflag.FlagSet) {
	f.VarP(&l.verbose, "verbose", "v", "log events to stderr")
	f.Lookup("verbose").NoOptDefVal = "true"
}

// begin makes the log, unless nothing is logged.
func (l *logging) begin(stderr io.Writer) {
	level := slog.LevelInfo
	if l.verbose > 0 {
		level = slog.LevelDebug
	}
	if l.livesOn || l.verbose > 0 {
		l.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	}
}

// ofVotes returns the log for each vote, or nil.
func (l *logging) ofVotes() *slog.Logger {
	if l.states && l.verbose < 2 {
		return nil
	}
	return l.log
}

// A verbosity is the number of --verbose flags.
type verbosity int

func (v *verbosity) String() string { return strconv.FormatBool(*v > 0) }

// Type makes the help show it like a boolean flag.
func (v *verbosity) Type() string { return "bool" }

func (v *verbosity) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if *v++; !on {
		*v = 0
	}
	return err
}
