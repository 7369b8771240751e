-- sliding_log (3) and sliding_window (4): a list of when and how much, in the
-- order of time. A sub-window is an instant at which several hits met, so both
-- are one. An entry is 12 bytes: its instant, and the sum of all that was charged
-- up to and with it, both modulo 2^48. Before the entries lie 34 bytes of the list.
-- What counts is a difference of two sums, so that what has passed is found by
-- halving, in a log of a million too. In a wide list a sum has 24 more bits, as a
-- number of their own, since each of thousands of sub-windows may have 2^53 units. An
-- entry there is 15 bytes, and before the entries lie 40.
--
-- t is the newest instant, cur the present one, n how many entries count, dead
-- how many lie before them, base and last the sums before the first and after
-- the last that count. base may lie within the first, when a log forgot a part.
-- Of a list longer than what open fetches the rest is fetched where it is needed,
-- and changed in place.
local WRAP = 281474976710656 -- 2^48
local LOG = 1250000 -- units that an overdrawn log counts, limiter.MaxLogUnits

-- logMost returns how many units a log keeps. With fewer it has forgotten none that count: see package limiter.
local function logMost(p)
  return p[5] == 2 and 2 * p[2] < LOG and 2 * p[2] or LOG
end

-- entry returns instant and sum of the i-th entry that counts, from 0.
local function entry(s, i)
  if i == s.n - 1 then
    return s.t, s.last, s.lastHigh
  end
  local size, form, v = 12, '<I6I6', s.v
  if s.lastHigh then
    size, form = 15, '<I6I6I3'
  end
  local at = s.at + (s.dead + i) * size
  if at + size - 1 > #v then
    v, at = call('GETRANGE', s.k, at - 1, at + size - 2), 1
  end
  local t, sum, high = unpack(form, v, at)
  return s.t - (s.t - t) % WRAP, sum, s.lastHigh and high
end

-- counted returns the units that count, or, of these, those after an entry with a sum. From 2^53 on
-- they are rounded.
local function counted(s, sum, high)
  if s.lastHigh then
    return (s.lastHigh - (high or s.baseHigh)) % 16777216 * WRAP + (s.last - (sum or s.base))
  end
  return (s.last - (sum or s.base)) % WRAP
end

-- first returns the least i from which on f(instant, sum) holds; n if for none.
local function first(s, f)
  local low, high = 0, s.n
  while low < high do
    local middle = floor((low + high) / 2)
    if f(entry(s, middle)) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function drop(s, count)
  s.dead, s.n = s.dead + count, s.n - count
end

-- push adds n units at cur.
local function push(s, n)
  if s.n == 0 or s.t ~= s.cur then
    s.t, s.n = s.cur, s.n + 1
  end
  if s.lastHigh then
    local low = s.last + n % WRAP
    s.last, s.lastHigh = low % WRAP, (s.lastHigh + floor(n / WRAP) + floor(low / WRAP)) % 16777216
  else
    s.last = (s.last + n) % WRAP
  end
end

-- grow adds n units at cur to a log, which then keeps the newest of so many.
local function grow(s, n, most)
  push(s, n)
  if counted(s) > most then
    local base = (s.last - most) % WRAP
    s.base = base
    drop(s, first(s, function(_, sum) return sum ~= base and (sum - base) % WRAP < WRAP / 2 end))
  end
end

F[3] = {
  -- load without a value forgets, of a list that was loaded, what p no longer
  -- counts.
  load = function(s, v, i)
    local p = s.p
    if v and p.most then
      s.t, s.u, s.dead, s.n, s.base, s.last, s.baseHigh, s.lastHigh = unpack('<I7I7I4I4I6I6I3I3', v, i)
      s.v, s.at = v, i + 40
    elseif v then
      s.t, s.u, s.dead, s.n, s.base, s.last = unpack('<I7I7I4I4I6I6', v, i)
      s.v, s.at = v, i + 34
    elseif not s.n then
      s.n, s.dead, s.base, s.last, s.v, s.at = 0, 0, 0, 0, '', 0
      if p.most then
        s.baseHigh, s.lastHigh = 0, 0
      end
    end
    s.cur = now - now % p[7]
    if s.t > s.cur then
      s.cur = s.t
    end
    local gone = s.cur - p[3]
    if s.n == 0 or entry(s, 0) > gone then
      return
    elseif s.t <= gone then
      drop(s, s.n)
      s.base, s.baseHigh = s.last, s.lastHigh
      return
    end
    local count = first(s, function(t) return t > gone end)
    local _, sum, high = entry(s, count - 1)
    drop(s, count)
    s.base, s.baseHigh = sum, high
  end,
  used = counted,
  -- A log lets go of the oldest beyond logMost. One that held more, under a larger
  -- limit, keeps as much: it may come under that limit again.
  charge = function(s, n)
    local have, most = counted(s), logMost(s.p)
    grow(s, n, have > most and have or most)
  end,
  empty = function(s)
    return s.n > 0 and s.t + s.p[3] or 0
  end,
  admits = function(s, n)
    local room = s.p.cap - n
    local i = first(s, function(_, sum, high) return counted(s, sum, high) <= room end)
    local t = entry(s, i)
    return t + s.p[3]
  end,
  -- save writes a list, from entry s.from on as s.tail says: the last entry, unless
  -- a refund changed more. It returns the whole of a short one, and stores a long
  -- one itself.
  save = function(s, ttl)
    local from, tail = s.from or s.n - 1, s.tail
    local size, form, item = 12, '<I7I7I4I4I6I6', '<I6I6'
    if s.lastHigh then
      size, form, item = 15, '<I7I7I4I4I6I6I3I3', '<I6I6I3'
    end
    if s.n == 0 then
      from, tail = 0, ''
    elseif not tail then
      tail = pack(item, s.t % WRAP, s.last, s.lastHigh)
    end
    local begin = s.at + s.dead * size
    local keep = begin + from * size - 1 -- the last byte that stays
    if #s.text + 40 + s.n * size <= 1200 and keep <= #s.v then
      return pack(form, s.t, s.u, 0, s.n, s.base, s.last, s.baseHigh, s.lastHigh) .. sub(s.v, begin, keep) .. tail
    end
    if s.adopted or s.dead > 100 and s.dead > s.n then
      local kept = from > 0 and call('GETRANGE', s.k, begin - 1, keep - 1) or ''
      return pack(form, s.t, s.u, 0, s.n, s.base, s.last, s.baseHigh, s.lastHigh) .. kept .. tail
    end
    call('SETRANGE', s.k, keep, tail)
    call('SETRANGE', s.k, #s.text, pack(form, s.t, s.u, s.dead, s.n, s.base, s.last, s.baseHigh, s.lastHigh))
    call('PEXPIRE', s.k, ttl)
  end,
}

F[4] = {
  load = F[3].load,
  used = counted,
  charge = function(s, n)
    local room = s.p.most or MOST
    if s.n > 0 and s.t == s.cur and n > room - counted(s) then
      local _, before, high
      if s.n > 1 then
        _, before, high = entry(s, s.n - 2)
      end
      room = room - counted(s, before, high)
    end
    push(s, n < room and n or room)
  end,
  empty = F[3].empty,
  admits = F[3].admits,
  save = F[3].save,
}
