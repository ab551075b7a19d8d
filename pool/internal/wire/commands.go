package wire

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/keys"
	"github.com/redquorum/redquorum/internal/protocol"
	"github.com/redquorum/redquorum/internal/record"
)

// A command is how one operation is said to Redis, and how its answer is understood.
type command struct {
	script *script // nil: a plain command
	head   Packet  // of a plain command: the words that never change

	oneKey bool // what is done to keys that others could ask for is about the request's Key

	// forMany does it for many keys at once (see Merger); nil: there is none.
	forMany *script

	encode func(p Packet, r *protocol.Request) Packet // appends the other words
	decode func(answer any) (protocol.Reply, error)

	// makesKey: the request is not sent again when the server has lost the script, because its
	// release may be on its way already, and would be overtaken.
	makesKey bool

	// deletesKey: where the key holds the value, the script does nothing but delete it. A deletion
	// can then stand for it.
	deletesKey bool
}

var commands = [...]command{
	protocol.OpAcquire: {oneKey: true, head: Begin(6, "SET"), encode: encodeSet, decode: decodeSet},
	protocol.OpExtend:  {oneKey: true, script: extendScript, forMany: extendEachScript, encode: encodeExtend, decode: decodeOwned},
	protocol.OpRelease: {
		oneKey: true, script: releaseScript, forMany: releaseEachScript, encode: encodeRelease, decode: decodeReleased, deletesKey: true,
	},
	protocol.OpInspect: {oneKey: true, script: inspectScript, encode: encodeKey, decode: decodeInspect},
	protocol.OpLook:    {oneKey: true, script: lookScript, forMany: lookEachScript, encode: encodeRelease, decode: decodeOwned},

	protocol.OpAcquireFenced: {
		oneKey: true, script: acquireFencedScript, encode: encodeFenced, decode: decodeFenced, makesKey: true,
	},
	protocol.OpRaise: {oneKey: true, script: raiseScript, encode: encodeFenced, decode: decodeFenced},
	protocol.OpReleaseFenced: {
		oneKey: true, script: releaseFencedScript, encode: encodeFenced, decode: decodeReleased, deletesKey: true,
	},

	protocol.OpWatch: {oneKey: true, head: Begin(2, "PTTL"), encode: encodeKey, decode: decodeWatch},
	protocol.OpQueue: {script: queueScript, encode: encodeQueue, decode: decodeQueue},

	protocol.OpAdmit: {script: recordScript, encode: encodeRecord, decode: decodeRecord},

	protocol.OpShare:         {script: shareScript, encode: encodeShare, decode: decodeOwned, makesKey: true},
	protocol.OpExtendShared:  {script: extendSharedScript, encode: encodeReader, decode: decodeOwned},
	protocol.OpReleaseShared: {script: releaseSharedScript, encode: encodeReader, decode: decodeOwned},
	protocol.OpIntend:        {script: intendScript, encode: encodeIntent, decode: decodeOwned},
	protocol.OpMark:          {script: markScript, encode: encodeMark, decode: decodeOwned},
	protocol.OpSlots:         {script: slotsScript, encode: encodeSlots, decode: decodeSlots},
	protocol.OpKind:          {script: kindScript, encode: encodeKind, decode: decodeReleased},
}

// The scripts of locks answer 1 for done, and otherwise a list with the remaining TTL of the key
// that is there, in the terms of PTTL. The two shapes cannot be mistaken for each other, and the
// common one costs no allocation. What the scripts of readers have in common is lua/readers.lua.
var (
	extendScript  = newScript(1, 2, "extend")
	lookScript    = newScript(1, 1, "look")
	releaseScript = newScript(1, 1, "release")
	inspectScript = newScript(1, 0, "inspect")

	queueScript  = newScript(2, 5, "queue")
	markScript   = newScript(1, 2, "mark")
	recordScript = newScript(1, 4, "record")
	slotsScript  = newKeysScript("slots")
	kindScript   = newScript(2, 4, "kind")

	shareScript         = newScript(3, 3, "share")
	extendSharedScript  = newScript(2, 2, "extend_shared")
	releaseSharedScript = newScript(2, 2, "release_shared")
	intendScript        = newScript(2, 3, "intend")
)

// ProcessScript answers who the server's process is, as the script of the record has it.
var ProcessScript = luaSource("process")

// Scripts returns the sources of all scripts that are called by their digests.
func Scripts() (sources []string) {
	for _, cmd := range commands {
		for _, s := range []*script{cmd.script, cmd.forMany} {
			if s != nil {
				sources = append(sources, s.source)
			}
		}
	}
	return sources
}

// unexpected is for an answer that no command of ours has.
func unexpected(answer any) (protocol.Reply, error) {
	return protocol.Reply{}, fmt.Errorf("%w: %T", ErrUnexpected, answer)
}

// encodeSet makes the plain command, so that a client of any language that locks this way excludes
// this one and is excluded by it.
func encodeSet(p Packet, r *protocol.Request) Packet {
	return p.Text(r.Key).Text(r.Value).Text("NX").Text("PX").Number(r.TTL.Milliseconds())
}

func decodeSet(answer any) (protocol.Reply, error) {
	switch answer {
	case "OK":
		return protocol.Reply{Outcome: protocol.Granted}, nil
	case nil:
		return protocol.Reply{Outcome: protocol.Refused}, nil
	}
	return unexpected(answer)
}

func encodeExtend(p Packet, r *protocol.Request) Packet {
	return p.Text(r.Key).Text(r.Value).Number(r.TTL.Milliseconds())
}

func encodeRelease(p Packet, r *protocol.Request) Packet { return p.Text(r.Key).Text(r.Value) }

// decodeOwned understands the answer of the scripts that do something only if the key holds the value.
func decodeOwned(answer any) (protocol.Reply, error) {
	if answer == int64(1) {
		return protocol.Reply{Outcome: protocol.Granted}, nil
	}
	if ms, ok := refusal(answer); ok {
		return protocol.Reply{Outcome: protocol.Refused, TTL: PTTL(ms)}, nil
	}
	return unexpected(answer)
}

// refusal returns the one number of a list.
func refusal(answer any) (n int64, ok bool) {
	if list, _ := answer.([]any); len(list) == 1 {
		n, ok = list[0].(int64)
	}
	return n, ok
}

// decodeReleased is decodeOwned for a refusal that may tell as well whose the key is: 1 for
// readers, or the owner's label.
func decodeReleased(answer any) (protocol.Reply, error) {
	list, ok := answer.([]any)
	if !ok || len(list) != 2 {
		return decodeOwned(answer)
	}
	const longest = 256 // of what the script tells
	reply, err := decodeOwned(list[:1])
	switch whose := list[1].(type) {
	case []byte:
		if len(whose) >= longest {
			return unexpected(answer)
		}
		reply.Owner = string(whose)
	case int64:
		reply.Readers = whose == 1
	default:
		return unexpected(answer)
	}
	return reply, err
}

func encodeKey(p Packet, r *protocol.Request) Packet { return p.Text(r.Key) }

func decodeInspect(answer any) (protocol.Reply, error) {
	if list, ok := answer.([]any); ok && len(list) == 2 {
		value, ok := list[0].([]byte)
		ms, ok2 := list[1].(int64)
		if ok && ok2 {
			return protocol.Reply{Outcome: protocol.Granted, Value: string(value), TTL: PTTL(ms)}, nil
		}
	}
	return unexpected(answer)
}

func decodeWatch(answer any) (protocol.Reply, error) {
	switch ms, ok := answer.(int64); {
	case !ok:
		return unexpected(answer)
	case ms == -2:
		return protocol.Reply{Outcome: protocol.Granted}, nil
	default:
		return protocol.Reply{Outcome: protocol.Refused, TTL: PTTL(ms)}, nil
	}
}

// PTTL translates the answer of PTTL: -2 for no key, -1 for no TTL. A key in its last millisecond
// answers 0 and is still there.
func PTTL(ms int64) time.Duration {
	switch {
	case ms == -2:
		return 0
	case ms < 0:
		return protocol.NoTTL
	default:
		return max(time.Duration(ms)*time.Millisecond, time.Microsecond)
	}
}

func encodeQueue(p Packet, r *protocol.Request) Packet {
	leave := int64(0)
	switch {
	case r.Ticket.Overtakes:
		leave = 2
	case r.Ticket.Leave:
		leave = 1
	}
	waited := strconv.FormatFloat(float64(r.Ticket.Waited.Microseconds())/1000, 'f', -1, 64)
	return p.Text(r.Key).Text(keys.Seen(r.Key)).Text(r.Ticket.ID).Text(waited).
		Number(r.Ticket.Life.Milliseconds()).Number(leave).Text(r.Ticket.Replaces)
}

func decodeQueue(answer any) (protocol.Reply, error) {
	if behind, ok := answer.(int64); ok && behind >= 0 {
		return protocol.Reply{Outcome: protocol.Granted, Others: int(behind)}, nil
	}
	if before, ok := refusal(answer); ok && before > 0 {
		return protocol.Reply{Outcome: protocol.Refused, Others: int(before)}, nil
	}
	if list, ok := answer.([]any); ok && len(list) == 2 {
		behind, ok := list[0].(int64)
		us, ok2 := list[1].(int64)
		if ok && ok2 && behind > 0 && us > 0 {
			return protocol.Reply{Outcome: protocol.Granted, Others: int(behind), Next: time.Duration(us) * time.Microsecond}, nil
		}
	}
	return unexpected(answer)
}

func encodeMark(p Packet, r *protocol.Request) Packet {
	return p.Text(r.Key).Number(r.Mark).Number(r.TTL.Milliseconds())
}

func encodeSlots(p Packet, r *protocol.Request) Packet {
	s := r.Slots
	if !r.Watch {
		p = slotsScript.begin(p, 1, 5).Text(r.Key)
	} else {
		p = slotsScript.begin(p, s.N, 5)
		for slot := range s.N {
			p = p.Text(r.SlotKey(slot))
		}
	}
	return p.Text(s.Stem).Text(s.Tail).Number(int64(s.N)).Number(int64(s.From)).Number(protocol.MostFree)
}

func decodeSlots(answer any) (protocol.Reply, error) {
	switch answer := answer.(type) {
	case int64:
		if answer >= -1 {
			return protocol.Reply{Outcome: protocol.Refused, TTL: PTTL(answer)}, nil
		}
	case []any:
		free := make([]int, 0, protocol.MostFree)
		for _, v := range answer {
			if slot, ok := v.(int64); ok && slot >= 0 && slot <= math.MaxInt32 && len(free) < protocol.MostFree {
				free = append(free, int(slot))
			}
		}
		if len(free) == len(answer) && len(free) > 0 {
			return protocol.Reply{Outcome: protocol.Granted, Free: free}, nil
		}
	}
	return unexpected(answer)
}

func encodeKind(p Packet, r *protocol.Request) Packet {
	s := r.Slots
	return p.Text(r.Key).Text(s.Kind).Text(s.Stem).Text(s.Tail).Number(int64(s.N)).Number(r.TTL.Milliseconds())
}

func encodeRecord(p Packet, r *protocol.Request) Packet {
	a := r.Admit
	return p.Text(r.Key).Text(a.New).Text(a.Old).Text(a.Run).Number(a.Life.Milliseconds())
}

func decodeRecord(answer any) (protocol.Reply, error) {
	list, _ := answer.([]any)
	if len(list) != 4 {
		return unexpected(answer)
	}
	text, ok := list[0].([]byte)
	run, ok2 := list[1].([]byte)
	var ms [2]int64
	for i := range ms {
		n, isNumber := list[i+2].(int64)
		ms[i], ok2 = n, ok2 && isNumber
	}
	if !ok || !ok2 {
		return unexpected(answer)
	}
	milli := func(n int64) time.Duration { return time.Duration(max(n, 0)) * time.Millisecond }
	reply := protocol.Reply{Outcome: protocol.Granted, Life: milli(ms[0]), Epoch: &protocol.Epoch{
		Record: string(text), Clock: milli(ms[1]),
	}}
	if s := string(run); s != record.Unknown {
		reply.Run = s
	}
	return reply, nil
}

func encodeShare(p Packet, r *protocol.Request) Packet {
	return p.Text(r.Key).Text(r.Shared.Readers).Text(r.Shared.Intent).
		Text(r.Value).Number(r.TTL.Milliseconds()).Number(regardless(r))
}

func regardless(r *protocol.Request) int64 {
	if r.Shared.Regardless {
		return 1
	}
	return 0
}

func encodeReader(p Packet, r *protocol.Request) Packet {
	return p.Text(r.Key).Text(r.Shared.Readers).Text(r.Value).Number(r.TTL.Milliseconds())
}

func encodeIntent(p Packet, r *protocol.Request) Packet {
	return p.Text(r.Key).Text(r.Shared.Intent).Text(r.Value).Number(r.TTL.Milliseconds()).Number(regardless(r))
}
