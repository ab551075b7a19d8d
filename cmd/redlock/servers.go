package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/cmd/redlock/internal/plain"
	"github.com/redquorum/redquorum/cmd/redlock/internal/reread"
	"github.com/redquorum/redquorum/internal/fleet"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/pool"
	"github.com/redquorum/redquorum/redlock"
)

// servers has the flags that say on which servers the locks are, and how to connect to them.
type servers struct {
	config                   string
	nodes                    []string
	groups                   []string // as they are given
	embedded                 bool     // a flag of those that take locks
	prefix                   string
	guard                    bool
	maxTTL                   time.Duration
	nodeTimeout, dialTimeout time.Duration
	tlsCA, tlsCert, tlsKey   string
	passwordBy               string
	verbose                  verbosity
	livesOn                  bool // so that what is wrong with servers is logged, which others return as their error
	states                   bool // a reporter tells of the lock, and the log of each vote is for -vv

	flags  *pflag.FlagSet
	stderr io.Writer
	log    *slog.Logger // with --verbose, or if it lives on
	login  credentials
	sets   []serverSet                 // of groups
	opened [][]protocol.Node           // by open, of each set
	tls    func() (pool.Option, error) // of the files of TLS, which all sets share
}

// serverFlags adds the flags to a command, and has them settled before it runs.
func serverFlags(c *cobra.Command) *servers {
	s := &servers{}
	s.tls = sync.OnceValues(s.tlsOption)
	c.PreRunE = func(*cobra.Command, []string) error {
		s.stderr = c.ErrOrStderr()
		level := slog.LevelInfo
		if s.verbose > 0 {
			level = slog.LevelDebug
		}
		if s.livesOn || s.verbose > 0 {
			s.log = slog.New(slog.NewTextHandler(s.stderr, &slog.HandlerOptions{Level: level}))
		}
		if err := s.settle(); err != nil {
			return err
		}
		s.warnOfTLS()
		return nil
	}
	f := c.Flags()
	s.nodeFlags(f)
	f.StringArrayVar(&s.groups, "group", nil, "`NAME=URL,URL,...`: a group of servers, which has a part of the locks; repeat the flag for each group, instead of --node")
	f.StringVar(&s.prefix, "prefix", "", "`TEXT` before each name to make the key")
	f.BoolVar(&s.guard, "memory-guard", true, "give no vote to servers that may have forgotten locks")
	f.DurationVar(&s.maxTTL, "max-ttl", 0, "longest TTL that any client of the servers uses; a --ttl above 1h needs it (default: the longest that the servers have on record)")
	f.DurationVar(&s.nodeTimeout, "node-timeout", 0, "how long a vote waits for a majority of the servers (default: 500ms, or half the TTL if that is less)")
	f.DurationVar(&s.dialTimeout, "dial-timeout", time.Second, "how long to wait for a connection")
	f.StringVar(&s.tlsCA, "tls-ca", "", "`FILE` of the certificate authorities for rediss:// (default: the system's)")
	f.StringVar(&s.tlsCert, "tls-cert", "", "`FILE` of our certificate for rediss://")
	f.StringVar(&s.tlsKey, "tls-key", "", "`FILE` of its key")
	f.StringVar(&s.passwordBy, "password-command", "", "`COMMAND` of the shell that prints the password; run again for new connections, for passwords that expire")
	f.VarP(&s.verbose, "verbose", "v", "log events to stderr")
	f.Lookup("verbose").NoOptDefVal = "true"
	return s
}

// nodeFlags adds the flags that say which servers there are.
func (s *servers) nodeFlags(f *pflag.FlagSet) {
	s.flags = f
	f.StringVar(&s.config, "config", "", "configuration `FILE`; see \"redlock help config\"")
	f.StringArrayVar(&s.nodes, "node", nil, "`URL` of a server: redis://, rediss:// or unix://, with ?standby=HOST:PORT if it fails over; repeat the flag for each server, or separate URLs by commas (also --nodes)")
}

// bothSpellings lets --nodes stand for --node.
func bothSpellings(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "nodes" {
		name = "node"
	}
	return pflag.NormalizedName(name)
}

// nextURL finds the comma or semicolon before a URL: another one may be in a password.
var nextURL = regexp.MustCompile(`[,;]+\s*(?:([a-z]+://)|$)`)

// splitURLs returns the URLs of a list with commas, semicolons or spaces between them.
func splitURLs(list string) []string {
	return strings.Fields(nextURL.ReplaceAllString(list, " $1"))
}

// settle completes the flags by the environment and the configuration file.
func (s *servers) settle() error {
	if err := s.settleNodes(); err != nil {
		return err
	}
	if err := s.readGroups(); err != nil {
		return err
	}
	if err := s.checkURLs(); err != nil {
		return err
	}
	switch {
	case s.embedded && (s.flags.Changed("node") || s.flags.Changed("group")):
		return usageErrorf("--embedded and --%s exclude each other", s.namedBy())
	case !s.embedded && len(s.nodes) == 0 && len(s.sets) == 0:
		words := `no servers are configured: pass --node redis://HOST:PORT for each, set $REDLOCK_NODES (or --group and $REDLOCK_GROUPS), or write a configuration file ("redlock help config")`
		if s.flags.Lookup("embedded") != nil {
			words += "; for a trial, use --embedded"
		}
		return usageErrorf("%s", words)
	case (s.tlsCert == "") != (s.tlsKey == ""):
		given := "tls-cert"
		if s.tlsCert == "" {
			given = "tls-key"
		}
		return wrong(s.flags, given, "a certificate and its key belong together: pass both")
	}
	return nil
}

// namedBy is the flag that names the servers.
func (s *servers) namedBy() string {
	if s.sets != nil {
		return "group"
	}
	return "node"
}

// checkURLs refuses what is no URL of a server. It says which, and does not repeat it, because it may
// have a password.
func (s *servers) checkURLs() error {
	for _, set := range append(s.sets, serverSet{urls: s.nodes}) {
		for i, u := range set.urls {
			if _, _, err := pool.Dialer(u); err != nil {
				return wrong(s.flags, s.namedBy(), "%w", set.blame(fmt.Errorf("server %d: %s", i+1, strings.TrimPrefix(err.Error(), "pool: URL: "))))
			}
		}
	}
	return nil
}

// warnOfTLS tells of files for TLS where no server has it.
func (s *servers) warnOfTLS() {
	for _, set := range s.all() {
		if slices.ContainsFunc(set.urls, func(u string) bool { return strings.HasPrefix(u, "rediss://") || strings.HasPrefix(u, "valkeys://") }) {
			return
		}
	}
	for name, file := range map[string]string{"tls-ca": s.tlsCA, "tls-cert": s.tlsCert} {
		if file != "" {
			fmt.Fprintln(s.stderr, "redlock:", wrong(s.flags, name, "has no effect: no server has a rediss:// URL"))
		}
	}
}

// settleNodes is settle for a command that needs no servers of its own.
func (s *servers) settleNodes() error {
	var err error
	if s.login, err = configure(s.flags, usualFiles()); err == nil {
		err = s.login.by(s.flags, s.passwordBy)
	}
	if err != nil {
		return err
	}
	if s.login.reread != nil { // it was read once already, and a pipe cannot be read twice
		s.login.reread.Stderr = s.stderr
	}
	s.nodes = splitURLs(strings.Join(s.nodes, " "))
	return nil
}

// all returns the sets of servers, of which there are several only if they are groups.
func (s *servers) all() []serverSet {
	if s.sets == nil {
		return []serverSet{{urls: s.nodes}}
	}
	return s.sets
}

// embeddedFlag adds the flag for a trial without servers.
func (s *servers) embeddedFlag() {
	s.flags.BoolVar(&s.embedded, "embedded", false, "use five servers inside this process, for a trial; no other process can reach them")
}

// start returns the sets of servers, and starts those of --embedded. The caller calls stop in the end.
func (s *servers) start(ctx context.Context) (sets []serverSet, stop func(), err error) {
	if !s.embedded {
		return s.all(), func() {}, nil
	}
	f, err := fleet.Start(ctx, fleet.Embedded, fleet.Options{})
	if err != nil {
		return nil, nil, err
	}
	s.login = credentials{}
	s.guard = false // they are as old as this process, and no other process uses them
	return []serverSet{{urls: f.URLs()}}, func() { f.Close() }, nil
}

// poolOptions returns the options for package pool.
func (s *servers) poolOptions() ([]pool.Option, error) {
	opts := []pool.Option{pool.DialTimeout(s.dialTimeout)}
	if s.login.areSet() {
		opts = append(opts, pool.Credentials(s.login.current)) // for each connection those of its time
	}
	if s.log != nil {
		opts = append(opts, pool.Log(s.log))
	}
	if s.tlsCA == "" && s.tlsCert == "" {
		return opts, nil
	}
	config, err := s.tls()
	return append(opts, config), err
}

// tlsOption reads the files of the flags for the first time.
func (s *servers) tlsOption() (pool.Option, error) {
	var authorities *reread.Files[*x509.CertPool]
	var pair *reread.Files[tls.Certificate]
	var err error
	if s.tlsCA != "" {
		authorities, err = s.authorities("tls-ca", s.tlsCA)
	}
	if s.tlsCert != "" && err == nil {
		pair, err = s.keyPair("tls-cert", s.tlsCert, s.tlsKey)
	}
	return pool.TLSFunc(func(context.Context, string) (*tls.Config, error) {
		c := &tls.Config{}
		if authorities != nil {
			c.RootCAs = authorities.Current()
		}
		if pair != nil {
			c.Certificates = []tls.Certificate{pair.Current()}
		}
		return c, nil
	}), err
}

// open returns a Locker over the sets. Its errors are about settings, not about servers that do not
// answer.
func (s *servers) open(sets []serverSet, more ...redlock.LockerOption) (*redlock.Locker, error) {
	nodes, err := s.openSets(sets)
	if err != nil {
		return nil, err
	}
	opts := []redlock.LockerOption{redlock.Prefix(s.prefix), redlock.MemoryGuard(s.guard)}
	if s.log != nil && (!s.states || s.verbose > 1) {
		opts = append(opts, redlock.Log(s.log))
	}
	if s.maxTTL != 0 {
		opts = append(opts, redlock.MaxTTL(s.maxTTL))
	}
	if s.nodeTimeout != 0 {
		opts = append(opts, redlock.NodeTimeout(s.nodeTimeout))
	}
	opts = append(opts, more...)
	var locker *redlock.Locker
	if grouped(sets) {
		var of []redlock.Group
		for i, set := range sets {
			of = append(of, redlock.Group{Name: set.group, Nodes: nodes[i]})
		}
		locker, err = redlock.NewGroups(of, opts...)
	} else {
		locker, err = redlock.New(nodes[0], opts...)
	}
	if err != nil {
		return nil, s.refused(err)
	}
	s.opened = nodes
	return locker, nil
}

// disconnect has the Locker of open ask the servers nothing more. Its locks stay on the servers.
func (s *servers) disconnect() {
	var all sync.WaitGroup
	for _, node := range slices.Concat(s.opened...) {
		all.Go(func() { node.Close() })
	}
	all.Wait()
}

// ofOption finds the option of the library that its error is about.
var ofOption = regexp.MustCompile(`^redlock: option (\w+)(\(.*?\))?: `)

// capital finds where the words of an option's name meet, as in NodeTimeout and MaxTTL.
var capital = regexp.MustCompile(`([a-z])([A-Z])`)

// refused returns an error of the library about settings as one about a flag, or its source. Options
// that only the library checks have the names of flags.
func (s *servers) refused(err error) error {
	if option := ofOption.FindStringSubmatch(err.Error()); option != nil {
		flag := strings.ToLower(capital.ReplaceAllString(option[1], "$1-$2"))
		if s.flags.Lookup(flag) != nil {
			return wrong(s.flags, flag, "%s", strings.ReplaceAll(err.Error()[len(option[0]):], "MaxTTL", "--max-ttl"))
		}
	}
	return wrong(s.flags, s.namedBy(), "%s", plain.OneLine(err.Error()))
}

// openNodes returns the servers at urls as nodes, which the caller closes.
func (s *servers) openNodes(urls []string) ([]protocol.Node, error) {
	opts, err := s.poolOptions()
	if err != nil {
		return nil, err
	}
	nodes, err := pool.OpenWith(urls, opts...)
	if err != nil {
		return nil, wrong(s.flags, s.namedBy(), "%s", plain.OneLine(err.Error()))
	}
	return nodes, nil
}

// reader returns what reads the servers of a set.
func (s *servers) reader(set serverSet) (*inspect.Reader, error) {
	opts, err := s.poolOptions()
	if err != nil {
		return nil, err
	}
	r := &inspect.Reader{Prefix: s.prefix, Timeout: s.answerTimeout()}
	for _, u := range set.urls {
		name, dial, err := pool.Dialer(u, opts...)
		if err != nil {
			return nil, err
		}
		if twin := slices.IndexFunc(r.Servers, func(other inspect.Dialer) bool { return other.Name == name }); twin >= 0 {
			return nil, wrong(s.flags, s.namedBy(), "URLs %d and %d name the same server, %s", twin+1, len(r.Servers)+1, name)
		}
		r.Servers = append(r.Servers, inspect.Dialer{Name: name, Dial: dial})
	}
	return r, nil
}

// read reads what the servers of a set hold. What is wrong with servers is told there.
func (s *servers) read(ctx context.Context, set serverSet, q inspect.Question) (*inspect.Holdings, error) {
	r, err := s.reader(set)
	if err != nil {
		return nil, err
	}
	return r.Read(ctx, q)
}

// readAll reads what the servers of all sets hold, at once.
func (s *servers) readAll(ctx context.Context, sets []serverSet, of func(serverSet) inspect.Question) ([]*inspect.Holdings, error) {
	found := make([]*inspect.Holdings, len(sets))
	return found, atOnce(len(sets), func(i int) (err error) {
		found[i], err = s.read(ctx, sets[i], of(sets[i]))
		return sets[i].blame(err)
	})
}

// atATime is how many questions are asked at the same time.
const atATime = 64

// atOnce calls f for 0 to n-1, each in a goroutine of its own. Its error is that of the lowest number.
func atOnce(n int, f func(i int) error) error {
	errs := make([]error, n)
	slots := make(chan struct{}, atATime)
	var wg sync.WaitGroup
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = f(i)
			<-slots
		})
	}
	wg.Wait()
	return cmp.Or(errs...)
}

// checkName refuses what is no lock's name before anything is asked.
func (s *servers) checkName(name string) error {
	switch {
	case name == "":
		return usageErrorf("the name of a lock must not be empty")
	case redlock.Reserved(s.prefix):
		return wrong(s.flags, "prefix", "must not look like a key of redlock's own")
	case redlock.Reserved(s.prefix + name):
		return usageErrorf("%q is a key of redlock's own, not a lock", name)
	}
	return nil
}

// answerTimeout returns how long the tools wait for one server's answer. No lock's validity runs
// out meanwhile, so this is as long as for a connection.
func (s *servers) answerTimeout() time.Duration { return max(s.nodeTimeout, s.dialTimeout) }

// explainTimeout has the help of such a tool say so.
func (s *servers) explainTimeout() {
	s.flags.Lookup("node-timeout").Usage = "how long to wait for a server's answer (default, and at least: --dial-timeout)"
}

// A verbosity is how often --verbose was given.
type verbosity int

func (v *verbosity) String() string { return strconv.FormatBool(*v > 0) }

// Type makes it look like a flag that is set or not.
func (v *verbosity) Type() string { return "bool" }

func (v *verbosity) Set(text string) error {
	on, err := strconv.ParseBool(text)
	if *v++; !on {
		*v = 0
	}
	return err
}

// readFlag reads the files of a flag.
func readFlag[T any](s *servers, flag string, parse func(texts ...[]byte) (T, error), files ...string) (*reread.Files[T], error) {
	explain := func(err error) error {
		if _, hasPath := errors.AsType[*fs.PathError](err); !hasPath {
			err = fmt.Errorf("%s: %s", strings.Join(files, " and "), strings.TrimPrefix(err.Error(), "tls: "))
		}
		return wrong(s.flags, flag, "%w", err)
	}
	return firstRead(func() (*reread.Files[T], error) { return reread.Read(files, s.stderr, explain, parse) })
}

// authorities reads the certificates of a flag's file.
func (s *servers) authorities(flag, file string) (*reread.Files[*x509.CertPool], error) {
	return readFlag(s, flag, func(texts ...[]byte) (*x509.CertPool, error) {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(texts[0]) {
			return nil, errors.New("no certificate in PEM format")
		}
		return pool, nil
	}, file)
}

// keyPair reads the certificate of a flag's file, and its key.
func (s *servers) keyPair(flag, cert, key string) (*reread.Files[tls.Certificate], error) {
	return readFlag(s, flag, func(texts ...[]byte) (tls.Certificate, error) { return tls.X509KeyPair(texts[0], texts[1]) }, cert, key)
}
