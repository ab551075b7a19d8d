package doctor

import (
	"math"
	"strings"

	"github.com/redquorum/redquorum/cmd/redlock/internal/inspect"
	"github.com/redquorum/redquorum/internal/keys"
)

// A right is a command that package pool uses, with arguments that make it do nothing: keys that do
// not exist, or an invalid argument. (A server checks the number of arguments, then the ACL, then
// the arguments.) The keys have the prefixes of the library's keys, because doctor does not know the
// names of locks.
type right struct {
	words []any
	grant string // in the notation of ACLs
	newer bool   // a server that does not know the command needs no right to it
}

// A purpose is a group of rights, with the consequence of a missing right.
type purpose struct {
	severity Severity
	check    string
	rights   []right
	means    string
}

// purposes returns all rights, the most important first.
func purposes(prefix string) []purpose {
	lock := prefix + keys.Probe
	queue, readers := keys.Queue.Of(lock), keys.Readers.Of(lock)
	return []purpose{
		{Fatal, checkRights, []right{
			{words: []any{"SET", lock, "", "XX", "PX", 1}, grant: "+set"},
			{words: []any{"GET", lock}, grant: "+get"},
			{words: []any{"DEL", lock}, grant: "+del"},
			{words: []any{"PEXPIRE", lock, 1}, grant: "+pexpire"},
			{words: []any{"PTTL", lock}, grant: "+pttl"},
			{words: []any{"TIME"}, grant: "+time"},
			{words: []any{"EVALSHA", strings.Repeat("0", 40), 0}, grant: "+evalsha"},
		}, "it has no vote, or locks cannot be released or extended"},
		{Note, checkRights, []right{
			{words: []any{"EVAL", "return 1", 0}, grant: "+eval"},
			{words: []any{"SCRIPT", "LOAD", "("}, grant: "+script|load"},
		}, "one of the two is enough, at the cost of longer requests, or of one failed request after SCRIPT FLUSH; without both it has no vote"},
		{Warning, checkRights, []right{
			{words: []any{"ROLE"}, grant: "+role"},
			{words: []any{"INFO", "server"}, grant: "+info"},
			{words: []any{"CLIENT", "ID"}, grant: "+client|id"},
			// Before Redis 7.0 the ID 0 means all clients.
			{words: []any{"CLIENT", "KILL", "ID", int64(math.MaxInt64)}, grant: "+client|kill"},
		}, "replicas, restarts with old data, or requests in broken connections are not detected"},
		{Note, checkRights, []right{
			{words: []any{"ZADD", queue, "XX", 0, "none"}, grant: "+zadd"},
			{words: []any{"ZREM", queue, "none"}, grant: "+zrem"},
			{words: []any{"ZRANGE", queue, 0, 0}, grant: "+zrange"},
			{words: []any{"ZRANK", queue, "none"}, grant: "+zrank"},
			{words: []any{"ZCARD", queue}, grant: "+zcard"},
			{words: []any{"HSET", queue, "none", "", "none"}, grant: "+hset"},
			{words: []any{"HGET", queue, "none"}, grant: "+hget"},
			{words: []any{"HDEL", queue, "none"}, grant: "+hdel"},
		}, "waiters of fair locks are not served in order, and there are no fencing tokens and no readers"},
		{Note, checkRights, []right{
			{words: []any{"ZSCORE", readers, "none"}, grant: "+zscore"},
			{words: []any{"ZREMRANGEBYSCORE", readers, 0, 0}, grant: "+zremrangebyscore"},
			{words: []any{"EXISTS", readers}, grant: "+exists"},
		}, "there are no fencing tokens and no readers (options Fenced and Shared), and renewals and releases of many locks are not merged"},
		{Note, checkRights, []right{
			{words: []any{"MGET", lock}, grant: "+mget"},
		}, "renewals and releases of many locks are not merged: each runs a script, except releases on a server with DELEX or DELIFEQ"},
		{Note, checkRights, []right{
			{words: []any{"DELEX", lock, "IFEQ", ""}, grant: "+delex", newer: true},
			{words: []any{"DELIFEQ", lock, ""}, grant: "+delifeq", newer: true},
		}, "each release runs a script, so a lock can cost the server twice the work"},
		{Note, checkHints, []right{
			{words: []any{"CLIENT", "TRACKING", "OFF"}, grant: "+client|tracking"},
			{words: []any{"CLIENT", "CACHING", "YES"}, grant: "+client|caching"},
			// SUBSCRIBE is tried last, because afterwards the connection is useless for other
			// commands.
			{words: []any{"SUBSCRIBE", "__redis__:invalidate"}, grant: "+subscribe &__redis__:invalidate"},
		}, "it sends no hints when a lock is free or lost: waiters poll, and holders notice a loss at the next renewal"},
	}
}

// rights asks the server's ACL about each command (Redis 7: ACL DRYRUN). Without DRYRUN it tries
// each command.
func (v *visit) rights() error {
	user, dry := v.Answer("ACL WHOAMI").Text(), false
	if user != "" {
		try := inspect.NewCommand("ACL", "DRYRUN", user, "TIME")
		if err := inspect.Send(v.Conn, try); err != nil {
			return err
		}
		dry = try.Err == ""
	}
	all := purposes(v.settings.Prefix)
	asked := make([][]*inspect.Command, len(all))
	var flat []*inspect.Command
	for i, p := range all {
		for _, r := range p.rights {
			words := r.words
			if dry {
				words = append([]any{"ACL", "DRYRUN", user}, r.words...)
			}
			asked[i] = append(asked[i], inspect.NewCommand(words...))
		}
		flat = append(flat, asked[i]...)
	}
	if err := inspect.Send(v.Conn, flat...); err != nil {
		return err
	}
	for i, p := range all {
		v.missing(p, asked[i], dry, strings.TrimSpace("user "+user))
	}
	return nil
}

// missing reports the rights that a purpose lacks.
func (v *visit) missing(p purpose, asked []*inspect.Command, dry bool, user string) {
	var missing []string
	unknown := false
	for i, q := range asked {
		switch {
		case forbidden(q, dry):
			grant := p.rights[i].grant
			if v.noChannels {
				grant, _, _ = strings.Cut(grant, " &") // the server's ACL would reject channels
			}
			missing = append(missing, grant)
		case q.IsUnknown() && p.rights[i].newer:
		case q.IsUnknown():
			missing = append(missing, p.rights[i].grant)
			unknown = true
		}
	}
	switch {
	case len(missing) == 0 && p.check == checkHints:
		v.fine(p.check, "it sends hints to waiters when a lock is free")
	case len(missing) == 0 && p.severity == Fatal:
		v.fine(p.check, "the %s has the rights that locks need", user)
	case len(missing) > 0:
		list := strings.Join(missing, " ")
		do := "permit " + list
		if p.check == checkRights {
			do += ", on the keys redlock:* and " + ownKeys(v.settings.Prefix)
		}
		if unknown {
			do = "use Redis 6 or later, or check its configuration for renamed commands"
		}
		found := "the " + user + " lacks " + list
		if unknown {
			found = "it does not know the commands of " + list
		}
		if len(missing) == 2 && missing[0] == "+eval" { // neither can replace the other
			p.severity = Fatal
		}
		v.add(Finding{p.severity, p.check, found, p.means, do})
	}
}

// ownKeys describes the keys of the locks and, with a prefix, of the epoch record.
func ownKeys(prefix string) string {
	if prefix == "" {
		return "the keys of the locks"
	}
	return prefix + "*"
}

// forbidden reports whether the answer means that the command is not permitted. DRYRUN reports that
// in a reply that is not an error.
func forbidden(q *inspect.Command, dry bool) bool {
	if dry && q.Err == "" {
		return q.Text() != "OK"
	}
	return strings.HasPrefix(string(q.Err), "NOPERM")
}

// transport reports whether others on the network can read the requests.
func (v *visit) transport() {
	switch {
	case v.server.Clear && v.server.Password:
		v.add(Finding{Warning, checkTransport, "the password crosses the network in clear text", "anyone on the network path can take and delete locks", "use a rediss:// URL (TLS)"})
	case v.server.Clear:
		v.add(Finding{Note, checkTransport, "it requires neither TLS nor a password", "any client that reaches its port can take and delete locks", "keep other clients away, or use rediss:// and a password"})
	default:
		v.fine(checkTransport, "its connections are encrypted, or do not cross a network")
	}
}
