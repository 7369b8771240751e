-- What became of the units that holds have charged to a counter: see since in package limiter. The key has a
-- hash for it, with a field for each counter: the instant from which on it is known, and then times in their
-- order. Of each time there are the instant at which it began, the lowest level in it as ticks and 1/limit
-- ticks (by drips, as units and 0), and how many units were charged beyond the bound of the count. A hold begins
-- a time of a bucket, and such units one of a window. A time with a level that is not below the next one's
-- tells nothing that the next one does not, so they are one, with the later begin.
local NONE, TIMES = 9007199254740992, 64
local past = {} -- by the names of counters: their times; of each t and a, the lowest level
local beyond = {} -- by the names of counters: that a limit without room was charged up to its bound
local charging = {} -- by the names of counters: the states that a check charges, perhaps of the limit before still

local function hashOf(k)
  local tag, name = string.match(k, '^([^}]*})(.*)$')
  return tag .. '!past', name
end

-- pastOf returns the times of a counter.
local function pastOf(k)
  local p = past[k]
  if not p then
    local key, name = hashOf(k)
    local v = call('HMGET', key, name)[1] -- users of an access list may call what the scripts called before
    v = v ~= '' and v
    p = {known = now, fresh = not v}
    if v then
      p.known = unpack('<I7', v)
      for i = 8, #v, 28 do
        local from, t, a, lost = unpack('<I7I7I7I7', v, i)
        p[#p + 1] = {from = from, t = t, a = a, lost = lost}
      end
    end
    past[k] = p
  end
  return p
end

-- kept stores the times of a counter, if they have changed.
kept = function(k)
  local p = past[k]
  if not p or not p.changed then
    return
  end
  p.changed = false
  while #p > TIMES do -- the earlier two become one, which forgets that the level was higher at the end
    p[2].t, p[2].a, p[2].lost = p[1].t, p[1].a, p[2].lost + p[1].lost
    table.remove(p, 1)
  end
  local all = {pack('<I7', p.known)}
  for i, time in ipairs(p) do
    all[i + 1] = pack('<I7I7I7I7', time.from, time.t, time.a, time.lost < NONE and time.lost or NONE)
  end
  local key, name = hashOf(k)
  call('HSET', key, name, table.concat(all))
  local left = p.fresh and call('PTTL', sub(key, 1, -5) .. 'holds') or 0
  if left > call('PTTL', key) and p.fresh then -- else begin sets it
    call('PEXPIRE', key, left)
  end
  p.fresh = false
end

-- forget forgets the times of a counter: it counts otherwise from now on.
local function forget(k)
  local key, name = hashOf(k)
  past[k] = nil
  call('HSET', key, name, '')
end

-- starts begins a time of a counter.
local function starts(p)
  if #p == 0 or p[#p].from < now then
    p[#p + 1] = {from = now, t = NONE, a = 0, lost = 0}
  end
  p.changed = true
end

-- begun begins a time of a bucket that a hold has charged now.
local function begun(k)
  if not held[k] then
    past[k] = {known = now, fresh = true}
  end
  starts(pastOf(k))
  kept(k)
end

-- span returns n units as a level.
local function span(s, n)
  if s.p[1] == 6 then
    return n, 0
  end
  return muldiv(s.p[3], n, s.p[2])
end

-- less returns one level less another; 0 if that is larger.
local function less(s, t, a, u, b)
  t, a = t - u, a - b
  if a < 0 then
    t, a = t - 1, a + s.p[2]
  end
  if t < 0 then
    return 0, 0
  end
  return t, a
end

-- levelOf returns the level of a bucket.
local function levelOf(s)
  if s.p[1] == 6 then
    return s.a, 0
  end
  local at = notBefore(s)
  if s.t < at then
    return 0, 0
  end
  return ahead(s, s.p, at), s.a
end

-- losesBy returns how many of n units a charge would not count, since the count is at its bound.
local function losesBy(s, n)
  local f, count, most = s.p[1], s.a, s.p.most or MOST
  if n == 0 or f == 3 or f == 8 then -- after a refund the entries of a list are not what they were
    return 0
  elseif f == 5 or f == 6 then
    count, most = s.f.used(s), mostOf(s.p)
  elseif f == 4 then
    count = 0
    if s.n > 0 and s.t == s.cur then
      local _, before, high
      if s.n > 1 then
        _, before, high = entry(s, s.n - 2)
      end
      count = counted(s, before, high)
    end
  end
  if count > most and n > 0 then -- the bound is less than before
    return n + (count - most)
  end
  return n > most - count and n - (most - count) or 0
end

-- note tells the holds of a counter of a charge of n units, before it is made; with 0, of the present level.
-- final tells that no hold makes it.
note = function(s, n, final)
  local f, plain = s.p[1], s.plain
  s.plain = false -- from now on this script charges it
  charging[s.k] = n > 0 and s
  if n > 0 and byHit(s) then
    noteHit(s, hold and not final)
  end
  local bucket = f == 5 or f == 6
  local of = held[s.k] or plain and n == 0 -- when its last hold gives back, that is none any more
  if not of and (s.allowed or s.p[5] ~= 2) then
    return
  end
  local lost = losesBy(s, n)
  if not s.allowed and losesBy(s, n + 1) > 0 then
    beyond[s.k] = true
  end
  if not of or not bucket and lost == 0 then
    return
  end
  local p = pastOf(s.k)
  if not bucket then
    starts(p)
  end
  local last = p[#p]
  if bucket and last and now > last.from then -- before that nothing leaked
    local t, a = levelOf(s)
    if plain then -- a script that does not know holds charged it: it was empty then, and so without a value
      t, a = 0, 0
    end
    if last.lost > 0 then
      local u, b = span(s, last.lost)
      t, a = t + u, a + b
      if a >= s.p[2] then
        t, a = t + 1, a - s.p[2]
      end
    end
    if t < last.t or t == last.t and a < last.a then
      last.t, last.a, p.changed = t, a, true
    end
    local before = p[#p - 1]
    while before and before.lost + last.lost == 0 and (before.t > last.t or before.t == last.t and before.a >= last.a) do
      table.remove(p, #p - 1)
      before, p.changed = p[#p - 1], true
    end
  end
  if last and lost > 0 then
    last.lost, p.changed = last.lost + lost, true
  end
end

-- passes returns what is left now of a level, or units, that were charged at an instant, and takes them out of
-- the times since.
local function passes(s, at, t, a)
  local f, p = s.p[1], pastOf(s.k)
  for _, time in ipairs(p) do
    if time.from >= at then
      local u, b, gone = t, a, t
      if time.t < u or time.t == u and time.a < b then
        u, b = time.t, time.a
      end
      if time.t < NONE then
        time.t, time.a = less(s, time.t, time.a, t, a)
      end
      if time.lost > 0 then
        if f == 5 then
          local r
          gone, r = muldiv(t, s.p[2], s.p[3])
          gone = gone + floor((r + a) / s.p[3])
        end
        local lost, part = time.lost, 0
        if time.lost < NONE then
          time.lost = time.lost > gone and time.lost - gone or 0
        end
        if f == 5 or f == 6 then
          lost, part = span(s, lost)
        end
        u, b = less(s, u, b, lost, part)
      end
      t, a, p.changed = u, b, true
    end
  end
  return t, a
end

-- tried calls f with a copy of the times of a counter in their place.
local function tried(k, f)
  local p = pastOf(k)
  local copy = {known = p.known}
  for i, time in ipairs(p) do
    copy[i] = {from = time.from, t = time.t, a = time.a, lost = time.lost}
  end
  past[k] = copy
  local result = f()
  past[k] = p
  return result
end

-- takeOut takes n units of a charge of n + rest, which a hold made at an instant, back from a state. Parts name its
-- limit by counted.
local function takeOut(s, at, n, rest, counted)
  local f, p, t, a = s.p[1], pastOf(s.k), n, 0
  if f == 5 or f == 6 then
    if #p == 0 or at < p.known then
      refund[f](s, at, n, rest)
      note(s, 0)
      return
    end
    note(s, 0)
    t, a = span(s, n)
  end
  t, a = passes(s, at, t, a)
  if byHit(s) then
    takeHit(s, at, t, rest, counted)
  elseif t == 0 and a == 0 then
    return
  elseif f == 5 then
    local from = notBefore(s)
    local left, part = levelOf(s)
    left, part = less(s, left, part, t, a)
    s.t, s.a = from + left, part
    noted(s, from)
  elseif f == 6 then
    s.a = s.a - (t < s.a and t or s.a)
  else
    refund[f](s, at, t, rest, true)
  end
end
