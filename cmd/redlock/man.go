package main

import (
	"os"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
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
			forMan(c.Root())
			return doc.GenManTree(c.Root(), &doc.GenManHeader{Section: "1", Source: "redquorum", Manual: "Quorum locks"}, args[0])
		},
	}
}

// forMan turns the texts of all commands into what the generator of the pages
// understands, which is Markdown. They cannot be printed as help afterwards.
func forMan(root *cobra.Command) {
	root.Use, root.DisableFlagsInUseLine = "redlock COMMAND", true
	root.Long += "\n\n# CONFIGURATION\n\n" + configHelp // topics get no page
	for _, c := range append(root.Commands(), root) {
		c.Long = keepColumns(c.Long)
		c.Flags().VisitAll(nameValue)
	}
}

// indented is a block of lines that are not to be filled.
var indented = regexp.MustCompile(`(?m)(^  .*\n(\n?  .*(\n|\z))*)`)

// keepColumns fences tables and files off.
func keepColumns(text string) string {
	return indented.ReplaceAllStringFunc(text, func(block string) string {
		return "\n```\n" + strings.TrimRight(block, "\n") + "\n```\n"
	})
}

// nameValue writes --wait=DURATION in the place of --wait=0s where the value is
// one that stands for another default, or for none.
func nameValue(f *pflag.Flag) {
	name, usage := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "0s", "0", "[]":
		f.DefValue = strings.ToUpper(name)
	}
	f.Usage = usage
}
