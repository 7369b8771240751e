-- A reset: the keys but the last are removed. The last one marks the instant, for
-- as long as a receipt from before could take anything back.
--
-- ARGV[1] goes on: how many milliseconds that is at least.
local mark = KEYS[#KEYS]
local wait, n = 0, 0
for i = 1, #KEYS - 1 do
  wait = math.max(wait, call('PTTL', KEYS[i]))
  n = n + call('DEL', KEYS[i])
end
wait = math.max(wait + head[3] + slack, call('PTTL', mark)) -- receipts from before the last reset are older
call('SET', mark, string.format('%.0f', now + 1), 'PX', wait)
return {now, n}
