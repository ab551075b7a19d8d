package main

import (
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// newMan writes the manual pages from the same texts that --help prints.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:     "man DIR",
		Short:   "Write the manual pages to a directory",
		Example: `  redlock man /usr/local/share/man/man1 && man redlock-run`,
		Args:    oneArgument("the directory to write to"),
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Section: "1", Source: "redquorum", Manual: "Quorum locks"}, args[0])
		},
	}
}
