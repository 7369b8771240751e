-- refund has the functions that take n units of a charge of n + rest at an instant back from a
-- state, as far as they still count. What leaked from a bucket until its last charge leaked first from those that
-- rest, and if any rest, the hit that opened a window stays. See package limiter, Reduce. known tells that
-- the n units count, even if the count is at its bound.
local refund = {}
local recount, leaveSlots -- see concurrency.lua
local recounted = {} -- by the names of counters on concurrency: whether they were counted anew

-- ahead returns for how long the level of a bucket leaks from an instant on, as far as a level goes: what
-- is known of the last charge is up to a grain too early.
local function ahead(s, p, at)
  local longest = muldiv(p[3], mostOf(p), p[2]) + 1
  return s.t - at < longest and s.t - at or longest
end

-- plus returns a sum n units later, or earlier, with the high bits that a wide list has.
local function plus(sum, high, n)
  local low = sum + n % WRAP
  return low % WRAP, high and (high + floor(n / WRAP) + floor(low / WRAP)) % 16777216
end

-- minus returns the units from one sum to another, each with its high bits.
local function minus(sum, high, from, fromHigh)
  if high then
    return (high - fromHigh) % 16777216 * WRAP + (sum - from)
  end
  return (sum - from) % WRAP
end

-- full tells whether a count may stand for more than it says.
local function full(s, count)
  return count == (s.p.most or MOST)
end

refund[1] = function(s, at, n, rest, known)
  -- Without the hit that opened a window it would have begun with a later one,
  -- which is not recorded.
  if at < s.t or not known and full(s, s.a) or s.p[8] == 1 and at == s.t and n < s.a and rest == 0 then
    return
  end
  s.a = s.a - (n < s.a and n or s.a)
end

refund[7] = function(s, at, n, _, known)
  if at >= s.t and (known or not full(s, s.a)) then
    s.a = s.a - (n < s.a and n or s.a)
  end
end

refund[2] = function(s, at, n, _, known)
  if at >= s.t then
    if known or not full(s, s.a) then
      s.a = s.a - (n < s.a and n or s.a)
    end
  elseif at >= s.t - s.p[3] and (known or not full(s, s.b)) then
    s.b = s.b - (n < s.b and n or s.b)
  end
end

refund[3] = function(s, at, n, _, known)
  if s.p[1] == 3 and counted(s) >= logMost(s.p) then
    return -- it may have forgotten the charge, and would give back another one
  end
  at = at - at % s.p[7]
  local i = first(s, function(t) return t >= at end)
  if i == s.n then
    return
  end
  local t, sum, high = entry(s, i)
  if s.p[1] == 3 and at > now - s.p[3] then
    at = t -- a charge at an instant before the newest came to that one
  end
  local previous, before, beforeHigh = nil, s.base, s.baseHigh
  if i > 0 then
    previous, before, beforeHigh = entry(s, i - 1)
  end
  local was = minus(sum, high, before, beforeHigh)
  if t ~= at or s.p[1] == 4 and not known and full(s, was) then
    return
  end
  n = n < was and n or was
  local rest = {}
  for j = n < was and i or i + 1, s.n - 1 do
    local later, upTo, above = entry(s, j)
    upTo, above = plus(upTo, above, -n)
    rest[#rest + 1] = above and pack('<I6I6I3', later % WRAP, upTo, above) or pack('<I6I6', later % WRAP, upTo)
  end
  s.from, s.tail = i, table.concat(rest)
  s.last, s.lastHigh = plus(s.last, s.lastHigh, -n)
  if n == was then
    if i == s.n - 1 and previous then
      s.t = previous
    end
    s.n = s.n - 1
  end
end
refund[4] = refund[3]

refund[5] = function(s, at, n, rest)
  local full, part = muldiv(s.p[3], mostOf(s.p), s.p[2])
  if s.t - at > full or s.t - at == full and s.a >= part then
    return -- the level has been at its bound since: more may have been charged than it says
  end
  local limit, charged = s.p[2], chargedBy(s)
  local elapsed = charged - at
  elapsed = elapsed > 0 and elapsed or 0
  part = 0
  if rest > 0 then
    local q, r = muldiv(s.p[3], rest, limit)
    elapsed = elapsed - q
    if r > 0 then
      elapsed, part = elapsed - 1, limit - r
    end
    if elapsed < 0 then
      elapsed, part = 0, 0
    end
  end
  local q, r = muldiv(s.p[3], n, limit)
  q, r = q - elapsed, r - part
  if r < 0 then
    q, r = q - 1, r + limit
  end
  if q < 0 or q == 0 and r == 0 then
    return
  end
  local left, at = 0, notBefore(s)
  part = 0
  if s.t >= at then
    left, part = ahead(s, s.p, at) - q, s.a - r
    if part < 0 then
      left, part = left - 1, part + limit
    end
    if left < 0 then
      left, part = 0, 0
    end
  end
  s.t, s.a = at + left, part
  noted(s, charged < now and charged or at) -- the refund is no charge
end

refund[6] = function(s, at, n, rest)
  local leaked = leaks(s.p, at, now)
  if s.a + leaked >= mostOf(s.p) then
    return -- as with other buckets
  end
  leaked = leaked - rest
  if leaked < 0 then
    leaked = 0
  end
  if leaked < n then
    s.a = s.a - (n - leaked < s.a and n - leaked or s.a)
  end
end

refund[8] = function(s, _, n)
  if full(s, s.a) and not recounted[s.k] then
    recount(s) -- the open holds, of which this is none any more
  elseif not recounted[s.k] then
    s.a = s.a - (n < s.a and n or s.a)
  end
end
