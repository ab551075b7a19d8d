package wire

import "github.com/redquorum/redquorum/internal/protocol"

// A command describes one operation: its encoding for Redis, and the decoding of its answer.
type command struct {
	script *script // nil for a plain command
	head   Packet  // constant words of a plain command

	oneKey bool // the request affects only its Key, of all keys that other requests can name

	// forMany runs the operation for many keys at once (see Merger); nil if no script does.
	forMany *script

	encode func(p Packet, r *protocol.Request) Packet // appends the variable words
	decode func(answer any) (protocol.Reply, error)

	// makesKey means that the request is not sent again after the server has lost the script,
	// because its release may already be in flight, and the repeated request would arrive after the
	// release.
	makesKey bool
}

var commands = [...]command{
	protocol.OpAcquire: {oneKey: true, head: Begin(6, "SET"), encode: encodeSet, decode: decodeSet},
	protocol.OpExtend:  {oneKey: true, script: extendScript, forMany: extendEachScript, encode: encodeExtend, decode: decodeOwned},
	protocol.OpRelease: {
		oneKey: true, script: releaseScript, forMany: releaseEachScript, encode: encodeRelease, decode: decodeReleased,
	},
	protocol.OpInspect: {oneKey: true, script: inspectScript, encode: encodeKey, decode: decodeInspect},
	protocol.OpLook:    {oneKey: true, script: lookScript, forMany: lookEachScript, encode: encodeRelease, decode: decodeOwned},

	protocol.OpAcquireFenced: {
		oneKey: true, script: acquireFencedScript, encode: encodeFenced, decode: decodeFenced, makesKey: true,
	},
	protocol.OpRaise: {oneKey: true, script: raiseScript, encode: encodeFenced, decode: decodeFenced},
	protocol.OpReleaseFenced: {
		oneKey: true, script: releaseFencedScript, encode: encodeFenced, decode: decodeReleased,
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
