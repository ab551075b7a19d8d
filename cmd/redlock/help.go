package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
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
{{flagsOf . false}}{{with flagsOf . true}}

Flags for groups of servers (see "redlock help config"):
{{.}}{{end}}{{end}}{{if .HasAvailableSubCommands}}

See "{{.Root.Name}} help{{if .HasParent}} {{.Name}}{{end}} COMMAND{{if .HasHelpSubCommands}}" or "{{.Root.Name}} help TOPIC{{end}}" for more.{{end}}
`

// flagsOf describes the flags of a command that are about groups of servers, or its others.
func flagsOf(c *cobra.Command, aboutGroups bool) string {
	some := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if aboutGroups == (f.Name == "group" || slices.Contains(mapFlags, f.Name)) {
			some.AddFlag(f)
		}
	})
	return strings.TrimRight(some.FlagUsagesWrapped(100), "\n")
}

const configHelp = `Servers and settings come from flags, else from the environment, else from a
configuration file:

  flag            environment              file
  --node          $REDLOCK_NODES           nodes
  --group         $REDLOCK_GROUPS          groups
  --map-version   $REDLOCK_MAP_VERSION     map_version
  --joining       $REDLOCK_JOINING         joining
  --leaving       $REDLOCK_LEAVING         leaving
  --group-prefix  $REDLOCK_GROUP_PREFIXES  group_prefixes
  --prefix        $REDLOCK_PREFIX          prefix
  --ttl           $REDLOCK_TTL             ttl
  --owner         $REDLOCK_OWNER           owner
  --max-ttl       $REDLOCK_MAX_TTL         max_ttl
  --memory-guard  $REDLOCK_MEMORY_GUARD    memory_guard
  --node-timeout  $REDLOCK_NODE_TIMEOUT    node_timeout
  --dial-timeout  $REDLOCK_DIAL_TIMEOUT    dial_timeout
  --tls-ca        $REDLOCK_TLS_CA          tls_ca
  --tls-cert      $REDLOCK_TLS_CERT        tls_cert
  --tls-key       $REDLOCK_TLS_KEY         tls_key
  --listen        $REDLOCK_LISTEN          listen
                  $REDLOCK_USERNAME        username
                  $REDLOCK_PASSWORD        password
                  $REDLOCK_PASSWORD_FILE   password_file
  --password-command  $REDLOCK_PASSWORD_COMMAND  password_command
  --config        $REDLOCK_CONFIG

$REDLOCK_NODES has commas or spaces between the URLs, nodes is a list. A command
ignores what it has no flag for, as owner is for "redlock run" and listen for
"redlock serve" only.

The file is YAML. It is the one that --config or $REDLOCK_CONFIG names, else the
first that exists of redlock.yaml in your configuration directory (~/.config, or
$XDG_CONFIG_HOME; on macOS ~/Library/Application Support) and /etc/redlock.yaml:

  nodes:
    - redis://10.0.0.1:6379
    - redis://10.0.0.2:6379
    - redis://10.0.0.3:6379
  ttl: 10s
  username: locks
  password_file: /run/secrets/redis

Passwords never need to be on a command line, where others see them: they can be
in the URLs of the environment or the file, in $REDLOCK_PASSWORD, or in a file
that password_file or $REDLOCK_PASSWORD_FILE names. username and password are for
the URLs that have none of their own. They are never printed.

A password that ends, as tokens of IAM do, is in a file, which is read again for
each connection, or is printed by --password-command. That is run by the shell,
again for connections that are made more than a second later. The files of --tls-ca,
--tls-cert and --tls-key are read again for each connection, too; while they are
broken, or do not fit together yet, those of before are used.

All who compete for a lock must use the same servers, prefix and max_ttl.

Instead of nodes there can be groups of servers, each with its part of the locks,
so that more servers do more work. A group has a name, which stays as it is when
the addresses of its servers change:

  groups:
    - a=redis://10.0.0.1:6379,redis://10.0.0.2:6379,redis://10.0.0.3:6379
    - b=redis://10.0.1.1:6379,redis://10.0.1.2:6379,redis://10.0.1.3:6379

On a command line that is a --group for each, or all in one; there and in
$REDLOCK_GROUPS all URLs have commas or spaces between them, those of one group
and the next group's name, too:

  export REDLOCK_GROUPS="a=redis://10.0.0.1:6379 b=redis://10.0.1.1:6379"

Of nodes and groups that of the better source counts, and both in one source are
an error. --map-version, --joining, --leaving and --group-prefix count from the
source of the groups, and from better ones.

The groups are changed while clients work, in three steps, at each of which all
clients have one of two maps:

  1. Clients get the next version, with the groups of both: those that are new as
     joining, those that are not to stay as leaving.
         --map-version 2 --group a=... --group b=... --group c=... --joining c
  2. "redlock doctor" with these flags says when the change is complete. That
     takes all clients, and one that has locked and stays for a minute.
  3. Clients get the version without --joining, and without the groups that left.
         --map-version 2 --group a=... --group b=... --group c=...

So is a single server replaced, or their number changed: by a group with another
name that joins, while the old one leaves. On servers that both have, a prefix of
the new group, which it keeps, tells their keys apart:

  --map-version 2 --group a=URL1,URL2,URL3 --leaving a \
      --group b=URL1,URL2,URL4 --joining b --group-prefix b=b:

A client whose map does not go together with that of others gets no lock, and
exits with 78.`

// newConfigHelp returns the help topic "config", which is no command.
func newConfigHelp() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Where servers and settings come from", Long: configHelp}
	c.SetHelpTemplate("{{.Long}}\n")
	return c
}

// knownTopic refuses to help about what is not there. cobra prints the help of "redlock" then, and
// exits with 0.
func knownTopic(help *cobra.Command, args []string) error {
	about, rest, err := help.Root().Find(args)
	switch {
	case err != nil || about == help.Root() && len(rest) > 0:
		return noCommand(help.Root(), args)
	case len(rest) > 0:
		return usageErrorf("%s has no command %q", about.CommandPath(), rest[0])
	}
	return nil
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
			if err := doc.GenManTree(c.Root(), &header, args[0]); err != nil {
				return err
			}
			return topicPages(c.Root(), header, args[0])
		},
	}
}

// topicPages writes the pages of the topics, which the tree leaves out.
func topicPages(root *cobra.Command, header doc.GenManHeader, dir string) error {
	for _, c := range root.Commands() {
		if !c.IsAdditionalHelpTopicCommand() {
			continue
		}
		var page bytes.Buffer
		of := header
		c.DisableFlagsInUseLine = true
		if err := doc.GenMan(c, &of, &page); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, root.Name()+"-"+c.Name()+".1"), page.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// forMan turns the texts of all commands into Markdown, because that is what the generator of
// the pages reads. They cannot be printed as help afterwards.
func forMan(root *cobra.Command) {
	root.Use, root.DisableFlagsInUseLine = "redlock COMMAND", true
	root.Long += "\n\n# CONFIGURATION\n\n**redlock-config(1)** has the configuration file, the variables, and which of them counts."
	for _, c := range append(root.Commands(), root) {
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
