-- leaky_bucket by interval (6): a is the level at t, a whole number, from which
-- p[8] units (nil: one) leak at each drip. Each window has limit/p[8] drips, at the
-- multiples of that part of it since the epoch.

-- into returns how many drips lie in (0, since] of a window.
local function into(p, since)
  return (muldiv(since, p[2] / (p[8] or 1), p[3]))
end

-- leaks returns how many units leak in (from, to]. From 2^53 on it is not exact, and
-- need not be: no level is higher.
local function leaks(p, from, to)
  if to <= from then
    return 0
  end
  local window = p[3]
  local windows, units = floor(to / window) - floor(from / window), (into(p, to % window) - into(p, from % window)) * (p[8] or 1)
  if units < 0 then
    windows, units = windows - 1, units + p[2]
  end
  return windows * p[2] + units
end

-- after returns the instant at which n units have leaked since t.
local function after(s, n)
  if n == 0 then
    return 0
  end
  local p = s.p
  local units, since = p[8] or 1, s.t % p[3]
  local begins, drips, before = s.t - since, floor((n - 1) / units) + 1, into(p, since)
  if drips + before >= 9007199254740992 then -- the drips of a window less, so that the sum is exact
    begins, drips = begins + p[3], drips - p[2] / units
  end
  local q, r = muldiv(p[3], drips + before, p[2] / units)
  if r > 0 then
    q = q + 1
  end
  return begins + q
end

F[6] = {
  load = function(s, v, i)
    if v then
      s.t, s.u, s.a = unpack((s.p.most or #v >= i + 20) and '<I7I7I7' or '<I7I7I4', v, i)
    end
    local n = s.a > 0 and leaks(s.p, s.t, now) or 0
    if n >= s.a then
      s.t, s.a = now, 0
    elseif n > 0 then
      s.t, s.a = now, s.a - n
    end
  end,
  used = function(s)
    return s.a
  end,
  charge = function(s, n)
    s.a = s.a + n
    if s.a > s.p[4] then
      local most = mostOf(s.p)
      s.a = s.a < most and s.a or most
    end
  end,
  empty = function(s)
    return after(s, s.a)
  end,
  admits = function(s, n)
    return after(s, s.a - (s.p.cap - n))
  end,
  save = function(s)
    return pack((s.p.most or s.a > MOST) and '<I7I7I7' or '<I7I7I4', s.t, s.u, s.a)
  end,
}
