package fence

import "fmt"

// RedisSet is a Lua script that writes to a hash unless the hash has seen a higher token. The token
// is the field fence of the same hash, so both live, expire and move together.
//
//	KEYS[1]        the hash
//	ARGV[1]        the token
//	ARGV[2], ...   fields and values, in turn, as for HSET; omit them to announce the token
//
// The script returns 0 if it has written or announced, and otherwise the highest token seen.
// [RedisReply] converts that reply into an error. For an invalid token, or a field fence that does
// not consist of digits below 2^53, the script returns an error reply and writes nothing.
//
// Any client that can run a script (Redis 4 or later, or Valkey) can use it, for example redigo:
//
//	set := redis.NewScript(1, fence.RedisSet)
//	reply, err := redis.Int64(set.Do(conn, "account:42", token)) // as soon as the lock is granted
//	if err == nil {
//		err = fence.RedisReply("account:42", token, reply)
//	}
//	reply, err = redis.Int64(set.Do(conn, "account:42", token, "balance", 90))
//
// The command line can use it, too, with the script in a file:
//
//	redis-cli --eval set.lua account:42 , 34 balance 90
//
// The hash does not need to be on a server that holds the lock. If its server loses or rolls back
// the hash (eviction, EXPIRE, failover to a lagging replica), one late writer may pass.
const RedisSet = `local token = tonumber(ARGV[1])
if not string.match(ARGV[1], '^[1-9]%d*$') or token >= 9007199254740992 then
	return redis.error_reply('ERR fence: not a token: ' .. ARGV[1])
end
local held = redis.call('HGET', KEYS[1], 'fence') or '0'
local seen = string.match(held, '^%d+$') and tonumber(held)
if not seen or seen >= 9007199254740992 then
	return redis.error_reply('ERR fence: the field fence of ' .. KEYS[1] .. ' is no token')
end
if token < seen then
	return seen
end
-- The token as it was given (Lua would write it as 1e+15), and last, so that
-- no other field can take its place.
local fields = {unpack(ARGV, 2)}
fields[#fields + 1] = 'fence'
fields[#fields + 1] = ARGV[1]
redis.call('HSET', KEYS[1], unpack(fields))
return 0
`

// RedisReply returns nil if reply, the result of RedisSet for token, means that the fields of key
// were written or the token was announced. Otherwise it returns a *StaleError, which matches
// ErrStale.
func RedisReply(key string, token, reply int64) error {
	switch {
	case reply == 0:
		return nil
	case reply > token:
		return &StaleError{Key: key, Token: token, Highest: reply}
	}
	return fmt.Errorf("fence: %d is not a valid reply to token %d for %q", reply, token, key)
}
