-- A reset: the keys but the last are removed. The last one marks the instant, for
-- as long as a receipt from before could take anything back.
--
-- ARGV[1] goes on: how many milliseconds that is at least.
local mark = KEYS[#KEYS]
local wait, n = call('PTTL', mark), 0
for i = 1, #KEYS - 1 do
  local left = call('PTTL', KEYS[i])
  wait = left > wait and left or wait
  n = n + call('DEL', KEYS[i])
end
wait = (wait > 0 and wait or 0) + head[3] + slack
call('SET', mark, string.format('%.0f', now + 1), 'PX', wait)
return {now, n}
