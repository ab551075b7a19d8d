package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noCommand is for commands that only have subcommands.
func noCommand(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageErrorf("unknown command %q%s; see %q", args[0], didYouMean(c, args[0], ""), c.CommandPath()+" --help")
}

// didYouMean suggests the subcommand of of with the most similar name, if one is similar enough.
func didYouMean(of *cobra.Command, typed, before string) string {
	if s := of.SuggestionsFor(typed); len(s) > 0 {
		return fmt.Sprintf(" (did you mean %q?)", before+s[0])
	}
	return ""
}

// flagNames returns a command that has the names of c's flags for subcommands, because cobra suggests only
// these.
func flagNames(c *cobra.Command) *cobra.Command {
	all := &cobra.Command{SuggestionsMinimumDistance: c.Root().SuggestionsMinimumDistance}
	c.Flags().VisitAll(func(f *pflag.Flag) {
		all.AddCommand(&cobra.Command{Use: f.Name, Run: func(*cobra.Command, []string) {}})
	})
	return all
}

// noArguments is for commands that take only flags.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no arguments, only flags: %q%s", c.Name(), args, withEquals(c, args))
	}
	return nil
}

// withEquals is the advice for an argument that was meant as the value of a flag that needs none.
func withEquals(c *cobra.Command, args []string) (advice string) {
	for _, value := range args {
		_, notBool := strconv.ParseBool(value)
		c.Flags().Visit(func(f *pflag.Flag) {
			isValue := f.Value.Type() == "bool" && notBool == nil
			if isValue && advice == "" {
				advice = fmt.Sprintf("; write --%s=%s", f.Name, value)
			}
		})
	}
	return advice
}

// oneArgument is for commands that take one argument. what describes it.
func oneArgument(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageErrorf("%s takes one argument, %s, not %d%s", c.Name(), what, len(args), withEquals(c, args))
		}
		return nil
	}
}
