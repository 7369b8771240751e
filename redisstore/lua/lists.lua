-- sliding_log (3) and sliding_window (4): a list of when and how much, in the
-- order of time. A sub-window is an instant at which several hits met, so both
-- are one. An entry is 12 bytes: its instant, and the sum of all that was charged
-- up to and with it, both modulo 2^48. What counts is a difference of two sums,
-- so that what has passed is found by halving, in a log of a million too.
--
-- t is the newest instant, cur the present one, n how many entries count, dead
-- how many lie before them, base and last the sums before the first and after
-- the last that count. base may lie within the first, when a log forgot a part.
-- Of a list longer than what open fetches the rest is fetched where it is needed,
-- and changed in place.
local WRAP = 281474976710656 -- 2^48
local ENTRY, HEADER, SHORT = 12, 34, 1200

-- entry returns instant and sum of the i-th entry that counts, from 0.
local function entry(s, i)
  if i == s.n - 1 then
    return s.t, s.last
  end
  local at, t, sum = s.at + (s.dead + i) * ENTRY
  if at + ENTRY - 1 <= #s.v then
    t, sum = unpack('<I6I6', s.v, at)
  else
    t, sum = unpack('<I6I6', call('GETRANGE', s.k, at - 1, at + ENTRY - 2))
  end
  return s.t - (s.t - t) % WRAP, sum
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
  s.last = (s.last + n) % WRAP
end

local function counted(s)
  return (s.last - s.base) % WRAP
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
    if v then
      s.t, s.u, s.dead, s.n, s.base, s.last = unpack('<I7I7I4I4I6I6', v, i)
      s.v, s.at = v, i + HEADER
    elseif not s.n then
      s.n, s.dead, s.base, s.last, s.v, s.at = 0, 0, 0, 0, '', 0
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
      s.base = s.last
      return
    end
    local count = first(s, function(t) return t > gone end)
    local _, sum = entry(s, count - 1)
    drop(s, count)
    s.base = sum
  end,
  used = counted,
  -- A log lets go of the oldest beyond the newest limit units: they cannot change
  -- an answer. One that held more, under a larger limit, keeps as much: under that
  -- limit it can, again.
  charge = function(s, n)
    local limit = counted(s)
    if limit < s.p[2] then
      limit = s.p[2]
    end
    grow(s, n, limit)
  end,
  empty = function(s)
    return s.n > 0 and s.t + s.p[3] or 0
  end,
  admits = function(s, n)
    local last, room = s.last, s.p[2] - n
    local i = first(s, function(_, sum) return (last - sum) % WRAP <= room end)
    local t = entry(s, i)
    return t + s.p[3]
  end,
  -- save writes a list, from entry s.from on as s.tail says: the last entry, unless
  -- a refund changed more. It returns the whole of a short one, and stores a long
  -- one itself.
  save = function(s, ttl)
    local from, tail = s.from or s.n - 1, s.tail
    if s.n == 0 then
      from, tail = 0, ''
    elseif not tail then
      tail = pack('<I6I6', s.t % WRAP, s.last)
    end
    local begin = s.at + s.dead * ENTRY
    local keep = begin + from * ENTRY - 1 -- the last byte that stays
    if #s.text + HEADER + s.n * ENTRY <= SHORT and keep <= #s.v then
      return pack('<I7I7I4I4I6I6', s.t, s.u, 0, s.n, s.base, s.last) .. sub(s.v, begin, keep) .. tail
    end
    if s.adopted or s.dead > 100 and s.dead > s.n then
      local kept = from > 0 and call('GETRANGE', s.k, begin - 1, keep - 1) or ''
      return pack('<I7I7I4I4I6I6', s.t, s.u, 0, s.n, s.base, s.last) .. kept .. tail
    end
    call('SETRANGE', s.k, keep, tail)
    call('SETRANGE', s.k, #s.text, pack('<I7I7I4I4I6I6', s.t, s.u, s.dead, s.n, s.base, s.last))
    call('PEXPIRE', s.k, ttl)
  end,
}

F[4] = {
  load = F[3].load,
  used = counted,
  charge = function(s, n)
    if s.n > 0 and s.t == s.cur and counted(s) + n > MOST then
      local before = s.base
      if s.n > 1 then
        local _, sum = entry(s, s.n - 2)
        before = sum
      end
      local room = MOST - (s.last - before) % WRAP
      if n > room then
        n = room
      end
    end
    push(s, n)
  end,
  empty = F[3].empty,
  admits = F[3].admits,
  save = F[3].save,
}
