-- A refund: what was charged at an instant is taken back, as far as it still
-- counts, so that no more is admitted than had it not been charged.
--
-- ARGV[1] goes on: the instant of the charge, 1 if the store takes back its own charge,
-- which no caller knows, then for each limit of the key the units, 0 if none. Three of KEYS, behind those of the
-- limits, have no parameters. The first marks the latest reset: receipts from before are
-- void. The second marks when limits were left for others that count otherwise: receipts
-- under them from before are void, but for the store's own. The third is given for a receipt
-- with a number, which is void if it is older than LIFE or was used, as this key remembers.
-- Behind these may be the id of the charge, for which ARGV has one more: a JSON list of the cost
-- and the limits, as bits, by which it must be remembered, the limits that remain, or -1 if
-- it is forgotten, and 1 if it is that of a hold: what that has charged was given back when it ended.
local LIFE = 600000000
local at, limits = head[3], #head - 4
arrive(limits)
local reset, once, id, of, v = tonumber(call('GET', KEYS[limits + 1]) or 0), KEYS[limits + 3], nil, nil, nil
if ARGV[limits + 2] then
  id, of, once = KEYS[#KEYS], cjson.decode(ARGV[limits + 2]), KEYS[limits + 4] and once
  v = call('GET', id)
  local over, was, cost, bits, relied = 0, 0, 0, 0, 0
  if v then
    over, was, cost, bits, relied = entryOf(v)
  end
  if over <= now and of[4] == 0 then
    id = nil
  elseif over <= now or was ~= at or cost ~= of[1] or bits ~= of[2] or relied == 2 or head[4] == 1 and relied == 1 and of[3] < 0 then
    if once then
      call('SET', once, 1, 'NX', 'PX', LIFE / 1000 + slack)
    end
    return {now} -- another charge is remembered, a settlement, or another attempt relies on this one
  end
end
local void = at < reset
if void and not id or once and now - at >= LIFE then
  return {now}
end
local byHold = {} -- limits that an open hold of the id has charged, and gives back
local states, dropped = {}, {} -- dropped: of limits that were left

-- left tells whether limit i was left since.
local function left(i)
  local marks = call('HMGET', KEYS[limits + 2], worthOf(i), '*')
  return at < tonumber(marks[1] or 0) or at < tonumber(marks[2] or 0)
end

-- nameOf returns by which name the parts of a hold know limit i.
local function nameOf(i)
  local s, v, begins = stored(KEYS[i])
  if ofSlots(i) then
    return s and s.p[1] == 8 and slotName(s, v, begins) or ''
  end
  return short(s and s.p[1] ~= 8 and partly(s.k, s.p, s.text) or worthOf(i, partly))
end

-- release takes the limits of the refund out of the hold of an id, which gives back what it has charged to them, or
-- ends it if no limits remain.
local function release(id, v, remain, limits)
  local g, h = groups[1], openHold(v)
  local gone, rest = {}, {}
  for i = 1, limits do
    local name = nameOf(i)
    gone[name] = head[4 + i] > 0 or remain < 0
    for _, part in ipairs(h and h.parts or {}) do
      byHold[i] = byHold[i] or part.limit == name
    end
  end
  if h then
    call('ZREM', g.holds, member(g, id, v))
    mark(g, call('EXISTS', g.holds) == 1)
    ending = h.parts
    for _, part in ipairs(h.parts) do
      part.gone = gone[part.limit]
      if part.gone then
        giveBack(g, part, part.cost, now)
      end
    end
    ending = nil
  end
  if remain < 0 then
    call('DEL', id)
    return
  end
  h = unfold(v, holdIn(v))
  for _, part in ipairs(h.parts) do
    if not gone[part.limit] then
      rest[#rest + 1] = part
    end
  end
  h.parts = rest
  local over, at, cost, _, relied = entryOf(v)
  local after = entryFor(over, at, cost, remain, relied) .. fold(h)
  call('SET', id, after, 'PX', call('PTTL', id))
  if h.over > now then
    call('ZADD', g.holds, whole(h.over), member(g, id, after))
    mark(g, true)
  end
end

for i = 1, limits do
  if head[4 + i] > 0 then
    states[i] = not void and not ofSlots(i) and open(i) -- see release
    local chosen = states[i] and states[i].want -- it was charged under another number since
    if chosen and head[4] == 1 then
      become(states[i])
    end
    dropped[i] = states[i] and head[4] == 0 and (chosen or left(i)) -- perhaps just now
  end
end
if strays() then
  return {-2, now}
end
if once and not call('SET', once, 1, 'NX', 'PX', LIFE / 1000 + slack) then
  return {now}
end
if id and #v >= holdIn(v) then
  release(id, v, of[3], limits)
elseif id and of[3] < 0 then
  call('DEL', id)
elseif id then
  call('SETRANGE', id, 18, pack('<I2', of[3]))
end
for i = 1, limits do
  local s, n = states[i], head[4 + i]
  if s and s.found and dropped[i] then
    if s.adopted then
      write(s, emptyAt(s))
    end
  elseif s and s.found and not byHold[i] then
    refund[s.p[1]](s, at, n, head[4] == 1 and byHit(s) and 1 or 0) -- of its own charge all units come back
    note(s, 0)
    write(s, emptyAt(s))
  end
end
return {now}
