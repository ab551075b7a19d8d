package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/internal/fleet"
)

// usageTemplate is cobra's, with flags that fit a window of 100 columns. It leaves out the usage
// of "redlock" alone, which does nothing, and of "redlock config", which is no command.
const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasHelpSubCommands}}

Topics:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{flagsOf .}}{{end}}{{if .HasAvailableSubCommands}}

See "{{.Root.Name}} help{{if .HasParent}} {{.Name}}{{end}} COMMAND{{if .HasHelpSubCommands}}" or "{{.Root.Name}} help TOPIC{{end}}" for more.{{end}}
`

// It is cobra's, for all commands of the process.
func init() { cobra.AddTemplateFunc("flagsOf", flagsOf) }

// flagsOf describes the flags of a command.
func flagsOf(c *cobra.Command) string {
	return strings.TrimRight(c.LocalFlags().FlagUsagesWrapped(100), "\n")
}

const configHelp = `A flag goes before the environment, and that before the configuration file:

  flag                environment                file
%s
In the environment the servers are one line of URLs, with commas or spaces between them. A command
ignores settings that it has no flag for.

The file is YAML. Without --config or $REDLOCK_CONFIG it is redlock.yaml in your configuration
directory (~/.config, or $XDG_CONFIG_HOME; on macOS ~/Library/Application Support), or else
/etc/redlock.yaml:

  nodes:
    - redis://10.0.0.1:6379
    - redis://10.0.0.2:6379
    - redis://10.0.0.3:6379
  ttl: 10s
  username: locks
  password_file: /run/secrets/redis

All clients of a lock must use the same servers, prefix and max_ttl.

PASSWORDS

Others see the command line, so put passwords into the URLs of the environment or the file, into
$REDLOCK_PASSWORD, or into a file that password_file or $REDLOCK_PASSWORD_FILE names. username and
password are for URLs that have none of their own. redlock never prints a password.

If a password expires, as IAM tokens do, write it to a file, or have --password-command print it.
Both are read again for new connections, and so are the files of --tls-ca, --tls-cert and
--tls-key. While a file is broken, what was read before stays in use.

GROUPS OF SERVERS

If one set of servers is too slow for all locks, several groups can share the work:

  groups:
    - a=redis://10.0.0.1:6379,redis://10.0.0.2:6379,redis://10.0.0.3:6379
    - b=redis://10.0.1.1:6379,redis://10.0.1.2:6379,redis://10.0.1.3:6379

Give each as a --group, or all of them in one, separated by commas or spaces:

  export REDLOCK_GROUPS="a=redis://10.0.0.1:6379 b=redis://10.0.1.1:6379"

Set nodes or groups, not both in one place. If they are set in two places, the first of flags,
environment and file counts.

All clients must name the same groups, with the same addresses. A client that names others gets no
lock, and exits with 78. To change the groups, stop all clients for the longest TTL, and run
"redlock reset" with the new groups.`

// newConfigHelp returns the help topic "config", which is no command.
func newConfigHelp() *cobra.Command {
	var table strings.Builder
	for _, s := range settings {
		flag := "--" + s.flag
		if s.flag == "" {
			flag = ""
		}
		if s.key != "" {
			fmt.Fprintf(&table, "  %-18s  $%-25s  %s\n", flag, variable(s.key), s.key)
		}
	}
	c := &cobra.Command{Use: "config", Short: "Sources of servers and settings", Long: fmt.Sprintf(configHelp, table.String())}
	c.SetHelpTemplate("{{.Long}}\n")
	return c
}

// knownTopic refuses to help about what is not there. cobra prints the help of "redlock" then, and
// exits with 0.
func knownTopic(help *cobra.Command, args []string) error {
	about, rest, err := help.Root().Find(args)
	return cmp.Or(err, noCommand(about, rest))
}

// newMan returns the command that writes the manual pages from the same texts that --help prints.
func newMan() *cobra.Command {
	return &cobra.Command{
		Use:               "man DIR",
		Short:             "Write the manual pages to a directory",
		Example:           `  redlock man /usr/local/share/man/man1 && man redlock-run redlock-config`,
		Args:              oneArgument("the directory to write to"),
		ValidArgsFunction: directories,
		RunE: func(c *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return err
			}
			header := doc.GenManHeader{Section: "1", Source: "redquorum", Manual: "Quorum locks"}
			forMan(c.Root())
			return doc.GenManTree(c.Root(), &header, args[0])
		},
	}
}

// forMan turns the texts of all commands into Markdown, because that is what the generator of
// the pages reads. They cannot be printed as help afterwards.
func forMan(root *cobra.Command) {
	root.Use, root.DisableFlagsInUseLine = "redlock COMMAND", true
	root.Long += "\n\n# CONFIGURATION\n\n**redlock-config(1)** has the configuration file, the variables, and which of them counts."
	for _, c := range append(root.Commands(), root) {
		if c.IsAdditionalHelpTopicCommand() { // which has a page only if it can be run
			c.Run, c.DisableFlagsInUseLine = func(*cobra.Command, []string) {}, true
		}
		c.Long = keepColumns(c.Long)
		c.Flags().VisitAll(nameValue)
	}
}

// indented is a block of lines that are not to be filled.
var indented = regexp.MustCompile(`(?m)(^  .*\n(\n?  .*(\n|\z))*)`)

// keepColumns fences the tables and files in a text off.
func keepColumns(text string) string {
	return indented.ReplaceAllStringFunc(text, func(block string) string {
		return "\n```\n" + strings.TrimRight(block, "\n") + "\n```\n"
	})
}

// nameValue writes --wait=DURATION in the place of --wait=0s where the zero stands for another
// default, or for none.
func nameValue(f *pflag.Flag) {
	name, usage := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "0s", "0", "[]":
		f.DefValue = strings.ToUpper(name)
	}
	f.Usage = usage
}

// offer has shells offer what can stand in each place. By themselves they offer files.
func offer(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for _, c := range root.Commands() {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if value, _ := pflag.UnquoteUsage(f); value == "FILE" {
				c.RegisterFlagCompletionFunc(f.Name, files)
			}
		})
	}
}

// commandOf offers files and programs behind a NAME.
func commandOf(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveDefault
}

var (
	files        = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)
	directories  = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveFilterDirs)
	kindsToStart = cobra.FixedCompletions([]string{string(fleet.Embedded), string(fleet.Process)}, cobra.ShellCompDirectiveNoFileComp)
)

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
			if h, err := s.read(ctx, set, inspect.Question{Limit: 1000, Members: 1}); err == nil {
				for _, l := range h.Locks {
					names = append(names, l.Name)
				}
			}
		}
		slices.Sort(names)
		names = slices.Compact(names)
		isOther := func(name string) bool { return !strings.HasPrefix(name, begun) || plain.Word(name) != name }
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
