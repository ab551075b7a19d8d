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

// usageTemplate is cobra's, with flags that fit a window of 100 columns. It omits the usage
// of "redlock" alone, which does nothing, and of "redlock config", which is a topic.
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

// It is a setting of cobra for all commands of the process.
func init() { cobra.AddTemplateFunc("flagsOf", flagsOf) }

// flagsOf describes the flags of a command, and names the flags for servers.
func flagsOf(c *cobra.Command) string {
	own, servers := pflag.NewFlagSet("", pflag.ContinueOnError), ""
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		switch _, shared := f.Annotations[ofServers]; {
		case f.Hidden:
		case shared:
			servers += " --" + f.Name
		default:
			own.AddFlag(f)
		}
	})
	text := describe(own)
	if servers != "" {
		text += "\n\nFlags of the servers (\"redlock help config\" describes them):\n" + filled(servers, "  ")
	}
	return text
}

// describe lists flags with their values and defaults. It omits the value of a boolean.
func describe(flags *pflag.FlagSet) string {
	const value = "[=true|false]"
	return strings.TrimRight(strings.ReplaceAll(flags.FlagUsagesWrapped(100), value, strings.Repeat(" ", len(value))), "\n")
}

// filled wraps words into indented lines of at most 100 columns.
func filled(words, indentation string) string {
	line, lines := "", []string(nil)
	for _, word := range strings.Fields(words) {
		if len(line)+1+len(word) > 98 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimLeft(line+" "+word, " ")
	}
	return indentation + strings.Join(append(lines, line), "\n"+indentation)
}

const configHelp = `A flag goes before the environment, and that before the configuration file:

  flag                environment                file
%s
The flags of servers, which all commands that need servers have:

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

// newConfigHelp returns the help topic "config".
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
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	newHold().Flags().VisitAll(func(f *pflag.Flag) {
		if _, shared := f.Annotations[ofServers]; shared {
			flags.AddFlag(f)
		}
	})
	c := &cobra.Command{Use: "config", Short: "Sources of servers and settings", Long: fmt.Sprintf(configHelp, table.String(), describe(flags))}
	c.SetHelpTemplate("{{.Long}}\n")
	return c
}

// newCronHelp returns the help topic "cron", which is not a command.
func newCronHelp() *cobra.Command {
	c := &cobra.Command{Use: "cron", Short: "Jobs that run once on all machines", Long: cronHelp}
	c.SetHelpTemplate("{{.Long}}\n")
	return c
}

const cronHelp = `--once-per 5m runs the command once in each slot of 5m by the clock, on all machines together. The
slots are the multiples of 5m since midnight in UTC, and a start belongs to the nearest: 12:02:31
and 12:07:29 to 12:05. So machines agree if their clocks differ by less than half a slot. A second
redlock in a slot exits as if another client held the lock. The start of redlock counts. If it
then waits for more than two slots (at least half a minute), it cannot know whether the command
was run: it does not run it, and exits with 1.

For a daily job, write --once-per day and the time zone of the crontab, such as --time-zone
Europe/Berlin, the same on all machines: 24h could leave a day out when summer time begins. A day
begins half a minute before midnight, for machines that are a little early. For every few hours,
write --once-per 1h, or 30m if the job starts at half past an hour of UTC.

If starts may be late, because of a random delay or because the machine was off, name the time of
the schedule: --tick 2030-01-07T02:30:00+01:00, or --tick @1893979800 (seconds since 1970). Its
slot counts then, in place of the slot of the start.

For a job without a schedule, such as one that a program runs when it starts, --at-least-apart 1h
runs the command unless its last start, on any machine, was less than an hour ago. For a schedule
use --once-per: of two starts that are a moment closer than 1h the second is refused.`

// checkHelp returns a pointer to the error of writing help, because cobra drops that error.
func checkHelp(root *cobra.Command) (unwritten *error) {
	help, unwritten := root.HelpFunc(), new(error)
	root.SetHelpFunc(func(c *cobra.Command, args []string) {
		var text strings.Builder
		out := c.OutOrStdout()
		c.SetOut(&text)
		help(c, args)
		c.SetOut(out)
		*unwritten = plain.Output(out, text.String())
	})
	return unwritten
}

// knownTopic returns an error for an unknown topic. Without it cobra would print the help of
// "redlock" and exit with 0.
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

// forMan turns the texts of all commands into Markdown, because the generator of the pages reads
// Markdown. The texts cannot be printed as help afterwards.
func forMan(root *cobra.Command) {
	root.Use, root.DisableFlagsInUseLine = "redlock COMMAND", true
	root.Long += "\n\n# CONFIGURATION\n\n**redlock-config(1)** has the configuration file, the variables, and which of them counts."
	for _, c := range append(root.Commands(), root) {
		if c.IsAdditionalHelpTopicCommand() { // a topic has a page only if it can be run
			c.Run, c.DisableFlagsInUseLine = func(*cobra.Command, []string) {}, true
		}
		c.Long = keepColumns(c.Long)
		c.Flags().VisitAll(nameValue)
	}
}

// indented matches a block of lines that must not be wrapped.
var indented = regexp.MustCompile(`(?m)(^  .*\n(\n?  .*(\n|\z))*)`)

// keepColumns puts fences around the tables and files in a text.
func keepColumns(text string) string {
	return indented.ReplaceAllStringFunc(text, func(block string) string {
		return "\n```\n" + strings.TrimRight(block, "\n") + "\n```\n"
	})
}

// nameValue replaces --wait=0s with --wait=DURATION if the zero stands for another default, or for
// none.
func nameValue(f *pflag.Flag) {
	name, usage := pflag.UnquoteUsage(f)
	switch f.DefValue {
	case "0s", "0", "[]":
		f.DefValue = strings.ToUpper(name)
	}
	f.Usage = usage
}

// offer sets the completions that shells offer for each argument. By default shells offer files.
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

// commandOf offers files and programs after a NAME.
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

// shellPatience bounds the time that a shell waits for the names of locks.
const shellPatience = 2 * time.Second

// lockNames offers the names of locks for the first arguments.
func (s *servers) lockNames(most int) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= most || s.settle() != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(c.Context(), shellPatience)
		defer cancel()
		var names []string
		for _, set := range s.targets.all() {
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

// forCompletion removes the backticks from the flags' descriptions. They mark the names of values
// for the help, and have no meaning for a shell.
func forCompletion(root *cobra.Command) {
	for _, c := range append(root.Commands(), root) {
		c.Flags().VisitAll(func(f *pflag.Flag) { _, f.Usage = pflag.UnquoteUsage(f) })
	}
}
