package main

import "github.com/spf13/cobra"

// noArguments is for commands that take flags only.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageErrorf("%s takes no arguments, only flags: %q", c.Name(), args)
	}
	return nil
}

// oneArgument is for commands that take one, which what describes.
func oneArgument(what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) != 1 {
			return usageErrorf("%s takes one argument, %s, not %d", c.Name(), what, len(args))
		}
		return nil
	}
}
