package pool

import "github.com/redquorum/redquorum/internal/protocol"

// The scripts of readers and writers: what they have in common is lua/readers.lua.
var (
	shareScript         = newScript(3, 3, "share")
	extendSharedScript  = newScript(2, 2, "extend_shared")
	releaseSharedScript = newScript(2, 2, "release_shared")
	intendScript        = newScript(2, 3, "intend")
)

func encodeShare(p packet, r *protocol.Request) packet {
	return p.text(r.Key).text(r.Shared.Readers).text(r.Shared.Intent).
		text(r.Value).number(r.TTL.Milliseconds()).number(regardless(r))
}

func regardless(r *protocol.Request) int64 {
	if r.Shared.Regardless {
		return 1
	}
	return 0
}

func encodeReader(p packet, r *protocol.Request) packet {
	return p.text(r.Key).text(r.Shared.Readers).text(r.Value).number(r.TTL.Milliseconds())
}

func encodeIntent(p packet, r *protocol.Request) packet {
	return p.text(r.Key).text(r.Shared.Intent).text(r.Value).number(r.TTL.Milliseconds()).number(regardless(r))
}
