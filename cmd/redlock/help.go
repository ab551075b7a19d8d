package main

import "github.com/spf13/cobra"

// usageTemplate is cobra's, with flags that fit a window of 100 columns, and
// without what does not exist: "redlock" alone does nothing, and "redlock config"
// is no command.
const usageTemplate = `Usage:
  {{if .HasAvailableSubCommands}}{{.CommandPath}} COMMAND{{else}}{{.UseLine}}{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if or .IsAvailableCommand (eq .Name "help")}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasHelpSubCommands}}

Topics:{{range .Commands}}{{if .IsAdditionalHelpTopicCommand}}
  {{rpad .Name .NamePadding}} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsagesWrapped 100 | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableSubCommands}}

See "{{.Root.Name}} help{{if .HasParent}} {{.Name}}{{end}} COMMAND{{if .HasHelpSubCommands}}" or "{{.Root.Name}} help TOPIC{{end}}" for more.{{end}}
`

const configHelp = `Servers and settings come from flags, else from the environment, else from a
configuration file:

  flag            environment             file
  --node          $REDLOCK_NODES          nodes
  --prefix        $REDLOCK_PREFIX         prefix
  --ttl           $REDLOCK_TTL            ttl
  --max-ttl       $REDLOCK_MAX_TTL        max_ttl
  --memory-guard  $REDLOCK_MEMORY_GUARD   memory_guard
  --node-timeout  $REDLOCK_NODE_TIMEOUT   node_timeout
  --dial-timeout  $REDLOCK_DIAL_TIMEOUT   dial_timeout
  --tls-ca        $REDLOCK_TLS_CA         tls_ca
  --tls-cert      $REDLOCK_TLS_CERT       tls_cert
  --tls-key       $REDLOCK_TLS_KEY        tls_key
                  $REDLOCK_USERNAME       username
                  $REDLOCK_PASSWORD       password
                  $REDLOCK_PASSWORD_FILE  password_file
  --config        $REDLOCK_CONFIG

$REDLOCK_NODES has commas or spaces between the URLs, nodes is a list. A command
ignores what it has no flag for, as ttl is for "redlock run" only.

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

All who compete for a lock must use the same servers, prefix and max_ttl.`

// newConfigHelp is no command, but the help topic "config".
func newConfigHelp() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Where servers and settings come from", Long: configHelp}
	c.SetHelpTemplate("{{.Long}}\n")
	return c
}
