-- leaky_bucket by interval (6): a is the level at t, a whole number, from which
-- one unit leaks at each multiple of window/limit since the epoch.

-- into returns how many drips lie in (0, since] of a window.
local function into(p, since)
  return (muldiv(since, p[2], p[3]))
end

-- drips returns how many lie in (from, to]. Above MOST it is not exact, and need
-- not be: no level is higher.
local function drips(p, from, to)
  if to <= from then
    return 0
  end
  local window = p[3]
  return (floor(to / window) - floor(from / window)) * p[2] + into(p, to % window) - into(p, from % window)
end

-- after returns the instant of the n-th drip after t.
local function after(s, n)
  if n == 0 then
    return 0
  end
  local p = s.p
  local since = s.t % p[3]
  local q, r = muldiv(p[3], n + into(p, since), p[2])
  if r > 0 then
    q = q + 1
  end
  return s.t - since + q
end

F[6] = {
  load = function(s, v, i)
    if v then
      s.t, s.u, s.a = unpack('<I7I7I4', v, i)
    end
    local n = s.a > 0 and drips(s.p, s.t, now) or 0
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
    if s.a > s.p[7] then
      s.a = s.p[7]
    end
  end,
  empty = function(s)
    return after(s, s.a)
  end,
  admits = function(s, n)
    return after(s, s.a + n - s.p[4])
  end,
  save = function(s)
    return pack('<I7I7I4', s.t, s.u, s.a)
  end,
}
