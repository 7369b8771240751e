-- Three sliding logs in one script, all or nothing, as it is mostly written: a
-- sorted set for each window. KEYS are the sets, ARGV three pairs of limit and
-- window in microseconds, and a name that no other check has. It answers 1 if the
-- check is allowed.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
for i = 1, 3 do
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now - ARGV[2 * i])
  if redis.call('ZCARD', KEYS[i]) >= tonumber(ARGV[2 * i - 1]) then
    return 0
  end
end
for i = 1, 3 do
  redis.call('ZADD', KEYS[i], now, ARGV[7])
  redis.call('PEXPIRE', KEYS[i], math.ceil(ARGV[2 * i] / 1000))
end
return 1
