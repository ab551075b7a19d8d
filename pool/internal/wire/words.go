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

// unexpected returns the error for an answer that none of our commands has.
func unexpected(answer any) (protocol.Reply, error) {
	return protocol.Reply{}, fmt.Errorf("%w: %T", ErrUnexpected, answer)
}

// encodeSet encodes the plain command, so that these locks and the locks of clients in other
// languages that use the same command exclude each other.
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

// decodeOwned decodes the answer of scripts that act only if the key holds the value.
func decodeOwned(answer any) (protocol.Reply, error) {
	if answer == int64(1) {
		return protocol.Reply{Outcome: protocol.Granted}, nil
	}
	if ms, ok := refusal(answer); ok {
		return protocol.Reply{Outcome: protocol.Refused, TTL: PTTL(ms)}, nil
	}
	return unexpected(answer)
}

// refusal returns the number in a list of one number.
func refusal(answer any) (n int64, ok bool) {
	if list, _ := answer.([]any); len(list) == 1 {
		n, ok = list[0].(int64)
	}
	return n, ok
}

// decodeReleased is like decodeOwned, for refusals that may also name the holder of the key: 1 for
// readers, or the owner's label.
func decodeReleased(answer any) (protocol.Reply, error) {
	list, ok := answer.([]any)
	if !ok || len(list) != 2 {
		return decodeOwned(answer)
	}
	const longest = 256 // longest label that the script returns
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

// PTTL converts the answer of PTTL: -2 for no key, -1 for no TTL. A key in its last millisecond
// answers 0 and still exists.
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
