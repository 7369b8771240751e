-- Holds: charges that wait for a settlement. The open holds of a key are a sorted set beside its
-- counters, by the instants at which they end. Redis has no timer for them, so before anything else
-- looks at the counters of a key, arrive takes off what has ended, each as of its end. A script
-- without this part does not miss them: while a key has holds, the values of its counters begin
-- with a brace, and such a script leaves them unread.
--
-- A hold is, packed: the instant of its end, 1 if it stays charged then, and how many parts it has;
-- then of each part the instant, the units, and a hash of what they are worth later, which names the
-- limit. A part of a limit on concurrency has the name that its counter was given, which begins with an s; it is
-- given back whenever the hold ends. Where one has more than 2^32-1 units, 2 is added to the number before theirs, and
-- the units of all take 7 bytes. Four times what the hold knows of its check (arith.Shape) is added, too. Behind
-- what remembers the id this is the value of the id's entry. With the end of the name of that entry it is a member
-- of the set.
--
-- The last of ARGV[1] is a list for a check that is to be held: for how long, 1 if it is kept and four times its
-- shape, how many milliseconds after its end the holds of the key may matter, and 1 if the check extends a
-- hold that there is.
local HOLDS, PARTS = 4096, 64
local groups, of = {}, {} -- the keys of the call with their limits; of: that of each limit
if head and type(head[#head]) == 'table' then
  hold = table.remove(head)
end
opened = {}
held = {} -- by the names of counters: whether the key has holds
local slots = {} -- by the names of counters: the states of limits on concurrency that a check holds

local function whole(n)
  return string.format('%.0f', n)
end

-- parse returns the parameters in a text, as open does.
local function parse(text)
  local p = cjson.decode(text)
  if p[1] > 8 then
    p[1], p.most = p[1] - 8, 9007199254740992
  end
  return p
end

-- entryOf returns what the entry of an id has, see ids.lua.
local function entryOf(v)
  local over, at, cost, bits, relied = unpack('<I7I7I4I2I1', v)
  if relied >= 4 then
    relied, cost = relied - 4, cost + unpack('<I3', v, 22) * 4294967296
  end
  return over, at, cost, bits, relied
end

-- entryFor is the inverse of entryOf.
local function entryFor(over, at, cost, bits, relied)
  if cost <= 4294967295 then
    return pack('<I7I7I4I2I1', over, at, cost, bits, relied)
  end
  return pack('<I7I7I4I2I1I3', over, at, cost % 4294967296, bits, relied + 4, floor(cost / 4294967296))
end

-- worth returns a text for a limit and for what a charge to it is worth later. Between
-- two limits of one text a state keeps each charge as it is.
local function worth(k, p, text)
  local f = p[1]
  if f ~= 5 and f ~= 6 and (f ~= 3 or p[5] ~= 2) then
    text = (p.most and f + 8 or f) .. ',' .. p[3]
    if f ~= 2 and f ~= 3 then
      text = text .. ',' .. p[7] .. ',' .. (p[8] or '')
    end
  end
  return string.match(k, '}(.*)$') .. text
end

-- partly returns worth for what is held, which a limit of the same kind gives back under other numbers, too: of a log
-- under those with its window. No other limit is called so by worth.
local function partly(k, p, text)
  local f = p[1]
  if f == 3 or f == 5 or f == 6 then
    return string.match(k, '}(.*)$') .. (p.most and f + 8 or f) .. (f == 3 and ';' .. p[3] or '')
  end
  return worth(k, p, text)
end

local function short(text)
  return sub(redis.sha1hex(text), 1, 12)
end

-- ofSlots tells whether limit i is one on concurrency.
local function ofSlots(i)
  local begins = sub(ARGV[i + 1], 1, 3)
  return begins == '[8,' or begins == '[16'
end

-- ofBucket tells whether limit i is a bucket.
local function ofBucket(i)
  local f = tonumber(string.match(ARGV[i + 1], '^%[(%d+),')) % 8
  return f == 5 or f == 6
end

-- worthOf returns worth of limit i, or what as says.
local function worthOf(i, as)
  local text = ARGV[i + 1]
  local begins = sub(text, 1, 3)
  if begins == '[7,' or begins == '[15' then
    text = split(text)
  end
  return (as or worth)(KEYS[i], parse(text), text)
end

-- slotName returns the name of a counter of concurrency, whose state begins at a byte of a value.
local function slotName(s, v, begins)
  begins = begins + (s.p.most and 14 or 11)
  return sub(v, begins, begins + 11)
end

-- isSlot tells whether a part is of a limit on concurrency.
local function isSlot(part)
  return sub(part.limit, 1, 1) == 's'
end

-- unfold reads a hold at byte i of a value.
local function unfold(v, i)
  local over, keep, n = unpack('<I7I1I2', v, i)
  local form, size = '<I7I4c12', 23
  if keep % 4 >= 2 then
    form, size = '<I7I7c12', 26
  end
  local h = {over = over, keep = keep % 2, shape = floor(keep / 4), parts = {}}
  for j = 1, n do
    local at, cost, limit = unpack(form, v, i + 10 + (j - 1) * size)
    h.parts[j] = {at = at, cost = cost, limit = limit, over = over}
  end
  return h
end

local function fold(h)
  local form, keep, all = '<I7I4', h.keep + 4 * h.shape, {}
  for _, part in ipairs(h.parts) do
    if part.cost > MOST then
      form, keep = '<I7I7', h.keep + 4 * h.shape + 2
    end
  end
  all[1] = pack('<I7I1I2', h.over, keep, #h.parts)
  for j, part in ipairs(h.parts) do
    all[j + 1] = pack(form, part.at, part.cost) .. part.limit
  end
  return table.concat(all)
end

-- holdIn returns at which byte of the value of an id's entry its hold begins, if it has one.
local function holdIn(v)
  return string.byte(v, 21) >= 4 and 25 or 22
end

-- member returns the hold that is the value of an id's entry as a member of the set.
local function member(g, k, v)
  return sub(v, holdIn(v)) .. sub(k, #g.tag + 1)
end

-- openHold returns the hold in the value of an id's entry; nil if there is none, or it has ended.
local function openHold(v)
  local i = holdIn(v)
  local h = #v >= i and unfold(v, i)
  return h and h.over > now and h or nil
end

local function mark(g, open)
  for i = g.first, g.last do
    held[KEYS[i]] = open
  end
end

-- stored returns the state of a counter as that of the limit that made it, not loaded yet, with
-- its value and where the state begins in it; nil if there is none.
local function stored(k)
  local v = call('GETRANGE', k, 0, 1199)
  if v == '' then
    return nil
  end
  local plain = opened[k] and sub(v, 1, 1) == '['
  v = '[' .. sub(v, 2)
  local close = string.find(v, ']', 1, true)
  local text = sub(v, 1, close)
  local p = parse(text)
  return {
    k = k, text = text, p = p, f = F[p[1]], t = 0, u = 0, a = 0, b = 0, e = 0, name = false, found = true, adopted = false, plain = plain
  }, v, close + 1
end

-- leftSince tells whether what a hold has charged at an instant to a limit of a key is void, since the key was reset
-- or the limit was left for one of another kind after it.
local function leftSince(g, at, counted)
  if not g.reset then
    g.reset, g.left = tonumber(call('GET', g.tag .. '!reset') or 0), call('EXISTS', g.tag .. '!past') == 1
  end
  if at < g.reset then
    return true
  elseif not g.left then
    return false
  end
  local marks = call('HMGET', g.tag .. '!past', '-' .. counted, '-*')
  return at < tonumber(marks[1] or 0) or at < tonumber(marks[2] or 0)
end

-- giveBack takes n of the units of a part back from the limit that was charged, as of an instant.
local function giveBack(g, part, n, as)
  for i = g.first, g.last do
    local s, v, begins = stored(KEYS[i])
    local counted = s and s.p[1] ~= 8 and partly(s.k, s.p, s.text)
    if s and (counted and short(counted) or slotName(s, v, begins)) == part.limit then
      if not counted or not leftSince(g, part.at, counted) then
        local present = now
        now = as
        s.f.load(s, v, begins)
        takeOut(s, part.at, n, part.cost - n, part.limit)
        local empties = emptyAt(s)
        if not byHit(s) then -- else the next part may let the window begin later
          now = present
        end
        write(s, empties)
        now = present
      end
      return
    end
  end
end

-- stays takes note of a part that stands when its hold ends.
local function stays(g, part)
  for i = g.first, isSlot(part) and 0 or g.last do
    if string.match(ARGV[i + 1] or '', '^%[[19],') then
      local s, v, begins = stored(KEYS[i])
      if s and byHit(s) and short(worth(s.k, s.p, s.text)) == part.limit then
        s.f.load(s, v, begins)
        settledHit(s, part.at)
      end
    end
  end
end

-- arrive takes off the holds that are over, of the keys of the first limits of KEYS, in the order of
-- their ends. It returns false if this takes a script with all families; then nothing has changed
-- for that key.
arrive = function(limits)
  for i = 1, limits do
    local tag, g = string.match(KEYS[i], '^[^}]*}'), groups[#groups]
    if not g or g.tag ~= tag then
      g = {tag = tag, holds = tag .. '!holds', first = i, last = i}
      groups[#groups + 1] = g
    end
    g.last, of[i] = i, g
  end
  for _, g in ipairs(groups) do
    local earliest = call('ZRANGE', g.holds, 0, 0)[1]
    mark(g, earliest ~= nil)
    for i = g.first, earliest and g.last or 0 do
      opened[KEYS[i]] = true
    end
    if earliest and unpack('<I7', earliest) <= now then
      for i = g.first, g.last do
        local s = stored(KEYS[i])
        if s and not s.f then
          return false
        end
      end
      local parts = {}
      for _, m in ipairs(call('ZRANGEBYSCORE', g.holds, '-inf', whole(now))) do
        local h = unfold(m, 1)
        for _, part in ipairs(h.parts) do
          if h.keep == 0 or isSlot(part) then
            parts[#parts + 1] = part
          else
            stays(g, part)
          end
        end
      end
      table.sort(parts, function(a, b) return a.over < b.over or a.over == b.over and a.at < b.at end)
      call('ZREMRANGEBYSCORE', g.holds, '-inf', whole(now))
      mark(g, call('EXISTS', g.holds) == 1)
      ending = parts
      for _, part in ipairs(parts) do
        part.gone = true
        giveBack(g, part, part.cost, part.over)
      end
      ending = nil
    end
  end
  return true
end

-- listed is sooner for a log or sub-windows, to which parts come back, each with the units that do and the instant t
-- of their entry. It returns the instant, or nothing if that is after the last of them has; with all the instant
-- for them all.
local function listed(s, want, parts, all)
  local p, room = s.p, s.p.cap - want

  -- fits tells whether what is charged after t fits, once the first n parts have come back.
  local function fits(t, n)
    local k, _, sum, high = first(s, function(of) return of > t end)
    if k > 0 then
      _, sum, high = entry(s, k - 1)
    end
    local upTo, above = s.last, s.lastHigh
    for j = 1, n do
      if parts[j].t > t then
        upTo, above = plus(upTo, above, -parts[j].units)
      end
    end
    return minus(upTo, above, sum or s.base, high or s.baseHigh) <= room
  end
  if not all and not fits(parts[#parts].over - p[3], #parts) then
    return
  end
  local low, high = 0, #parts + 1 -- too few parts, and enough, or all and time
  while high - low > 1 do
    local middle = floor((low + high) / 2)
    if fits(parts[middle].over - p[3], middle) then
      high = middle
    else
      low = middle
    end
  end
  if high <= #parts and not fits(parts[high].over - p[3], low) then
    return parts[high].over
  end
  return entry(s, first(s, function(t) return fits(t, low) end)) + p[3]
end

-- remains returns how many units of a log will count at an instant. left.back has what came back by then, by the
-- instants of entries.
local function remains(s, at, left)
  local gone, _, sum, high = at - s.p[3], nil, nil, nil
  local k = first(s, function(t) return t > gone end)
  if k > 0 then
    _, sum, high = entry(s, k - 1)
  end
  local units = counted(s, sum, high)
  for t, back in pairs(left.back or {}) do
    units = t > gone and units - back or units
  end
  return units
end

-- toList notes in a part what comes back of it to a list, as refund does. left has what is left of entries.
local function toList(s, part, left)
  local p, at, cost = s.p, part.at, part.cost
  if p[1] == 4 then
    at = at - at % p[7]
  end
  part.t, part.units = at, part.cost
  local units = counted(s)
  if units < (p[1] == 3 and logMost(p) or MOST) then
    return -- its entry has the units
  end
  part.units = 0
  local i = first(s, function(t) return t >= at end)
  while left[i] == 0 do
    i = i + 1
  end
  if i >= s.n or p[1] == 3 and remains(s, part.over, left) >= logMost(p) then
    return
  end
  local t, sum, high = entry(s, i)
  if t ~= at and (p[1] == 4 or at <= part.over - p[3]) then
    return
  end
  local before, beforeHigh, _ = s.base, s.baseHigh, nil
  if i > 0 then
    _, before, beforeHigh = entry(s, i - 1)
  end
  local was = minus(sum, high, before, beforeHigh)
  if p[1] == 4 then
    cost = passes(s, part.at, cost, 0)
  end
  left[i] = left[i] or was
  part.t, part.units = t, cost < left[i] and cost or left[i]
  left[i] = left[i] - part.units
  left.back = left.back or {}
  left.back[t] = (left.back[t] or 0) + part.units
end

-- soonest returns the first instant at which the state of limit i admits units that it admits at an instant by time
-- alone: earlier if holds end that give back what they have charged. See package limiter, RetryAt.
local function soonest(i, s, want, at)
  local g, p, f, text, c, left, size, from, parts, some = of[i], s.p, s.f, partly(s.k, s.p, s.text), {}, {}, 64, 0, {}, nil
  local name, list, present = short(text), p[1] == 3 or p[1] == 4, now
  for field, value in pairs(s) do
    c[field] = value
  end

  -- back takes note of what comes back at an instant of a charge.
  local function back(over, of, cost)
    if list then
      local part = {at = of, cost = cost, over = over, t = 0, units = 0}
      toList(s, part, left)
      parts[#parts + 1] = part
      return
    end
    now = over
    f.load(c)
    takeOut(c, of, cost, 0, name)
    at = f.used(c) + want <= p.cap and now or f.admits(c, want)
    now = present
  end
  if byHit(s) then
    local all = {all = true}
    for _, m in ipairs(call('ZRANGE', g.holds, 0, -1)) do
      local h = unfold(m, 1)
      for _, part in ipairs(h.parts) do
        if part.limit == name then
          part.keep = h.keep
          all[#all + 1] = part
        end
      end
    end
    table.sort(all, function(a, b) return a.over < b.over or a.over == b.over and a.at < b.at end)
    ending = all
    for _, part in ipairs(all) do
      if part.over >= at then
        break
      elseif part.keep == 0 and not leftSince(g, part.at, text) then
        part.gone = true
        back(part.over, part.at, part.cost)
      end
    end
    ending = nil
    return at
  end
  repeat
    some = call('ZRANGE', g.holds, from, from + size - 1)
    local last = #some < size
    for j = 1, #some do
      local over, keep, n = unpack('<I7I1I2', some[j])
      if over >= at then
        last = true
        break
      end
      local form, bytes = '<I7I4c12', 23
      if keep % 4 >= 2 then
        form, bytes = '<I7I7c12', 26
      end
      for k = 0, keep % 2 == 0 and n - 1 or -1 do
        local of, cost, limit = unpack(form, some[j], 11 + k * bytes)
        if limit == name and over < at and not leftSince(g, of, text) then
          back(over, of, cost)
        end
      end
    end
    local found = #parts > 0 and listed(s, want, parts, last)
    if found then
      return found < at and found or at
    end
    from, size = from + size, 2 * size
  until last
  return at
end

sooner = function(i, s, want, at)
  return tried(s.k, function()
    return soonest(i, s, want, at)
  end)
end

-- begin writes the entry of an id, and its hold into the set of the key, which had another one in the
-- place of before.
local function begin(id, at, cost, bits, relied, h, before)
  local g, life, v = of[id.first], head[4 + 2 * (#ARGV - 1)], fold(h)
  local over = h.over + (h.keep == 1 and life or 0)
  v = entryFor(over, at, cost, bits, relied) .. v
  if before then
    call('ZREM', g.holds, member(g, id.k, before))
  end
  call('SET', id.k, v, 'PX', '' .. floor((over - now + 999) / 1000) + slack)
  call('ZADD', g.holds, whole(h.over), member(g, id.k, v))
  local wait = floor((h.over - now + 999) / 1000) + hold[3] + slack
  for i = g.first - 2, g.last do -- with its counters of concurrency, which no charge may prolong
    local k = i < g.first - 1 and g.tag .. '!past' or i < g.first and g.holds or KEYS[i]
    if (i < g.first or ofSlots(i)) and call('PTTL', k) < wait then
      call('PEXPIRE', k, '' .. wait)
    end
  end
  mark(g, true)
end

-- charged appends to a hold what an answer says that a check has charged to the limits of an id. It
-- returns these limits as bits.
local function charged(h, id, answer)
  local bits = 0
  for i = id.first, id.last do
    local flags = answer[3 * i - 1] % 8
    if flags >= 4 and number[i] <= 64 then
      local s = slots[KEYS[i]]
      if s then
        s.a, s.b = s.a + s.b, 0
      elseif ofBucket(i) then
        begun(KEYS[i])
      end
      local c, name = charging[KEYS[i]], s and s.name
      if beyond[KEYS[i]] and flags % 2 == 0 then
        name = string.rep('-', 12)
      end
      h.parts[#h.parts + 1] = {at = now, cost = head[2 + 2 * i], limit = name or short(partly(c.k, c.p, c.text))}
      bits = bits + 2 ^ (i - id.first)
    end
  end
  return bits
end

if hold and hold[4] == 0 then
  -- room tells whether a key may have one more hold, and if not when the first of its holds ends.
  room = function(id)
    local k = of[id.first].holds
    if call('ZCARD', k) < HOLDS then
      return true
    end
    return false, unpack('<I7', call('ZRANGE', k, 0, 0)[1])
  end
  -- spent tells whether a check with an id that is known would hold nothing of a limit on concurrency, since
  -- the hold of the id is over.
  spent = function(id, v)
    for i = id.first, head[3 + 2 * id.first] == 0 and not openHold(v) and id.last or 0 do
      if ofSlots(i) then
        return true
      end
    end
    return false
  end
  reserve = function(id, answer)
    local h = {over = now + hold[1], keep = hold[2] % 2, shape = floor(hold[2] / 4), parts = {}}
    local bits = charged(h, id, answer)
    begin(id, now, head[2 + 2 * id.first], bits, 0, h)
  end
elseif hold then
  -- extension reads the ids of holds that are to be extended. It returns what recall does, for the
  -- limits of the keys whose estimates are raised, and leaves in ARGV[1] by how much. Or it returns
  -- the answer: the instant, what limiter.AmendState calls it, and the cost for which an id stands.
  extension = function()
    local known, order = false, {}
    eachID(function(id)
      id.v = call('GET', id.k)
      local over, was, cost, bits = 0, 0, 0, 0
      if id.v then
        over, was, cost, bits = entryOf(id.v)
      end
      if over > now then
        known = true
        id.hold, id.at, id.cost, id.bits = openHold(id.v), was, cost, bits
      end
      ids[#ids + 1] = id
    end)
    for _, id in ipairs(ids) do
      if id.cost and not id.hold then
        return nil, nil, {now, 4, id.cost}
      end
    end
    if not known then
      return nil, nil, {now, 3, 0}
    end
    for _, id in ipairs(ids) do
      if id.hold and head[2 + 2 * id.first] > id.cost then
        id.more = head[2 + 2 * id.first] - id.cost
        local n, last = 0, -1
        for _, part in ipairs(id.hold.parts) do
          if part.at ~= last then
            n, last = n + 1, part.at
          end
        end
        if n >= PARTS then
          return nil, nil, {now, 7, 0}
        end
        for i = id.first, id.last do
          head[2 + 2 * i] = id.more
          order[#order + 1], number[i] = i, #order + 1
        end
      end
    end
    return {}, order
  end
  -- reserve extends the hold of an id. Its numbers in the answer are 1 if it has one, with its shape above that, and
  -- its estimate and its end before.
  reserve = function(id, answer, made)
    if not id.hold then
      return 0, 0, 0
    end
    local before = id.hold.over
    if made then
      local h, cost = id.hold, id.cost
      if id.more then
        charged(h, id, answer)
        cost = cost + id.more
      end
      h.over = now + hold[1]
      begin(id, id.at, cost, id.bits, 1, h, id.v)
    end
    return 1 + 2 * id.hold.shape, id.cost, before
  end
end
