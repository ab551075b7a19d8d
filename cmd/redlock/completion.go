package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/internal/fleet"
)

// offer has shells offer what can stand in each place. By themselves they offer files.
func offer(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for _, c := range root.Commands() {
		for _, name := range []string{"config", "tls-ca", "tls-cert", "tls-key", "token-file", "cert", "key", "client-ca"} {
			if c.Flags().Lookup(name) != nil {
				c.RegisterFlagCompletionFunc(name, files)
			}
		}
	}
}

func files(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveDefault
}

// commandOf offers files and programs behind a NAME.
func commandOf(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

func directories(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return nil, cobra.ShellCompDirectiveFilterDirs
}

// kindsToStart are the kinds of servers that the command can start.
var kindsToStart = cobra.FixedCompletions([]string{string(fleet.Embedded), string(fleet.Process)}, cobra.ShellCompDirectiveNoFileComp)

// shellPatience is for how long a shell waits for the names of locks.
const shellPatience = 2 * time.Second

// lockNames offers the names of the locks that there are, so many of them at most.
func (s *servers) lockNames(most int) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most || s.settle() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), shellPatience)
		defer cancel()
		var names []string
		for _, set := range s.all() {
			if h, err := s.read(ctx, set, question{limit: 1000, members: 1}); err == nil {
				for _, l := range h.locks {
					names = append(names, l.name)
				}
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
		isOther := func(name string) bool { return !strings.HasPrefix(name, begun) || word(name) != name }
		return slices.DeleteFunc(names, isOther), cobra.ShellCompDirectiveNoFileComp
	}
}

// forCompletion removes the backticks from the flags' descriptions, which name the flags' values
// for help and are not for a shell.
func forCompletion(root *cobra.Command) {
	for _, c := range append(root.Commands(), root) {
		c.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	}
}
