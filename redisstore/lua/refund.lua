-- A refund: what was charged at an instant is taken back, as far as it still
-- counts, so that no more is admitted than had it not been charged.
--
-- ARGV[1] goes on: the instant of the charge, 1 if the store takes back its own charge,
-- which no caller knows, then for each limit the units. Three of KEYS, behind those of the
-- limits, have no parameters. The first marks the latest reset: receipts from before are
-- void. The second marks when limits were left for others that count otherwise: receipts
-- under them from before are void, but for the store's own. The third is given for a receipt
-- with a number, which is void if it is older than LIFE or was used, as this key remembers.
-- Behind these may be the id of the charge, for which ARGV has one more: a JSON list of the cost
-- and the limits, as bits, by which it must be remembered, and the limits that remain, or -1 if
-- it is forgotten.
local LIFE = 600000000
local refund = {}

-- full tells whether a count may stand for more than it says.
local function full(s, count)
  return count == MOST and s.p[5] == 2
end

refund[1] = function(s, at, n)
  -- Without the hit that opened a window it would have begun with a later one,
  -- which is not recorded.
  if at < s.t or full(s, s.a) or s.p[8] == 1 and at == s.t and n < s.a then
    return
  end
  s.a = s.a - (n < s.a and n or s.a)
end

refund[7] = function(s, at, n)
  if at >= s.t and not full(s, s.a) then
    s.a = s.a - (n < s.a and n or s.a)
  end
end

refund[2] = function(s, at, n)
  if at >= s.t then
    if not full(s, s.a) then
      s.a = s.a - (n < s.a and n or s.a)
    end
  elseif at >= s.t - s.p[3] and not full(s, s.b) then
    s.b = s.b - (n < s.b and n or s.b)
  end
end

refund[3] = function(s, at, n)
  at = at - at % s.p[7]
  if s.p[1] == 4 and at > s.cur then
    at = s.cur
  end
  local i = first(s, function(t) return t >= at end)
  if i == s.n then
    return
  end
  local t, sum = entry(s, i)
  if s.p[1] == 3 and s.p[5] ~= 2 and at > now - s.p[3] then
    at = t -- a charge at an instant before the newest came to that one
  end
  local before, was = s.base, 0
  local previous
  if i > 0 then
    previous, before = entry(s, i - 1)
  end
  was = (sum - before) % WRAP
  if t ~= at or s.p[1] == 4 and full(s, was) then
    return
  end
  n = n < was and n or was
  local rest = {}
  for j = n < was and i or i + 1, s.n - 1 do
    local later, upTo = entry(s, j)
    rest[#rest + 1] = pack('<I6I6', later % WRAP, (upTo - n) % WRAP)
  end
  s.from, s.tail = i, table.concat(rest)
  s.last = (s.last - n) % WRAP
  if n == was then
    if i == s.n - 1 and previous then
      s.t = previous
    end
    s.n = s.n - 1
  end
end
refund[4] = refund[3]

refund[5] = function(s, at, n)
  local elapsed = now > at and now - at or 0
  local q, r = muldiv(s.p[3], n, s.p[2])
  if q < elapsed then
    return
  end
  local ahead, part, at = 0, 0, notBefore(s)
  if s.t >= at then
    ahead, part = s.t - at - (q - elapsed), s.a - r
    if part < 0 then
      ahead, part = ahead - 1, part + s.p[2]
    end
    if ahead < 0 then
      ahead, part = 0, 0
    end
  end
  s.t, s.a = at + ahead, part
  noted(s, at)
end

refund[6] = function(s, at, n)
  local leaked = leaks(s.p, at, now)
  if leaked < n then
    s.a = s.a - (n - leaked < s.a and n - leaked or s.a)
  end
end

local at, limits = head[3], #head - 4
local reset, once, id, of = tonumber(call('GET', KEYS[limits + 1]) or 0), KEYS[limits + 3], nil, nil
if ARGV[limits + 2] then
  id, of, once = KEYS[#KEYS], cjson.decode(ARGV[limits + 2]), KEYS[limits + 4] and once
  local v = call('GET', id)
  local over, was, cost, bits, relied = 0, 0, 0, 0, 0
  if v then
    over, was, cost, bits, relied = unpack('<I7I7I4I2I1', v)
  end
  if over <= now then
    id = nil
  elseif was ~= at or cost ~= of[1] or bits ~= of[2] or head[4] == 1 and relied == 1 and of[3] < 0 then
    if once then
      call('SET', once, 1, 'NX', 'PX', LIFE / 1000 + slack)
    end
    return {now} -- another charge is remembered, or another attempt relies on this one
  end
end
local void = at < reset
if void and not id or once and now - at >= LIFE then
  return {now}
end
local states, any = {}, head[4] == 0 and call('EXISTS', KEYS[limits + 2]) == 1

-- left tells whether limit i was left since.
local function left(i)
  local text = ARGV[i + 1]
  if sub(text, 1, 3) == '[7,' then
    text = split(text)
  end
  local marks = call('HMGET', KEYS[limits + 2], worth({k = KEYS[i]}, cjson.decode(text), text), '*')
  return at < tonumber(marks[1] or 0) or at < tonumber(marks[2] or 0)
end

for i = 1, limits do
  states[i] = not void and not (any and left(i)) and open(i)
end
if strays() then
  return {-2, now}
end
if once and not call('SET', once, 1, 'NX', 'PX', LIFE / 1000 + slack) then
  return {now}
end
if id and of[3] < 0 then
  call('DEL', id)
elseif id then
  call('SETRANGE', id, 18, pack('<I2', of[3]))
end
for i = 1, limits do
  local s, n = states[i], head[4 + i]
  if s and s.found and n > 0 then
    refund[s.p[1]](s, at, n)
    write(s, emptyAt(s))
  end
end
return {now}
