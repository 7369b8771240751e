-- A fixed window, as it is mostly written: a counter that expires. KEYS is the counter,
-- ARGV the limit, and the window in milliseconds. It answers 1 if the check is allowed.
local n = redis.call('INCR', KEYS[1])
if n == 1 then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
if n > tonumber(ARGV[1]) then
  return 0
end
return 1
