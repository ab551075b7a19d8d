-- An acquisition whose block ends at the counter comes twice, or late: its release has run before
-- it. (If others have raised the counter since, a late acquisition looks like one whose token is
-- merely low.)
-- include read_counter
local raise = false
if last == counter or not call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then
	return {call('PTTL', KEYS[1])}
end
-- include accept_token
