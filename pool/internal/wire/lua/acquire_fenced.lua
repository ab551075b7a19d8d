-- An acquisition whose block ends at the counter is a duplicate, or late: its release ran before
-- it. (If other clients have raised the counter since then, a late acquisition looks like one whose
-- token is too low.)
-- include read_counter
local raise = false
if last == counter or not call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
	return {call('PTTL', KEYS[1])}
end
-- include accept_token
