-- sliding_counter (2). What the previous window still counts is rounded up where
-- it is not rounded at all: since all else is whole, that decides alike.

-- part returns what previous units count while so many ticks of their window are left. Where a
-- double cannot hold their product with the weight, this is multiplied with thousands and ones apart.
local function part(p, previous, left)
  local window, weight, rounding, q, r = p[3], p[8], p[9], 0, 0
  if weight == 1000 then
    q, r = muldiv(left, previous, window)
    if rounding == 1 or r == 0 or rounding == 2 and 2 * r < window then
      return q
    end
    return q + 1
  end
  local more, rest
  if previous * weight < 9007199254740992 then
    more, rest = muldiv(left, previous * weight, window)
  else
    q, r = muldiv(left, previous, window)
    local ones = q % 1000
    more, rest = muldiv(r, weight, window)
    q, more = (q - ones) / 1000 * weight, ones * weight + more
  end
  if rounding == 1 then
    return q + floor(more / 1000)
  elseif rounding == 2 then
    return q + floor((more + 500) / 1000)
  end
  return q + floor((more + (rest > 0 and 1000 or 999)) / 1000)
end

-- fits returns the first instant of the window from t at which the part of
-- previous is at most room: window - (units*window - less) / (previous*weight). Where doubles
-- cannot hold these, what is left of the window then is known to one tick by division.
local function fits(p, t, previous, room)
  local window, rate, units, less = p[3], previous * p[8], room * 1000, 0
  if rate == 0 then
    return t
  end
  if p[9] == 1 then
    units, less = units + 1000, 1
  elseif p[9] == 2 then
    units, less = units + 500, 1
  elseif room == 0 then
    return t + window
  end
  if rate < 9007199254740992 then
    if units > rate then
      return t
    end
    local q, r = muldiv(window, units, rate)
    if r < less then
      q = q - 1
    end
    return t + window - q
  end
  local left = window * units / rate
  left = left < window and left - left % 1 or window
  while part(p, previous, left) > room do
    left = left - 1
  end
  while left < window and part(p, previous, left + 1) <= room do
    left = left + 1
  end
  return t + window - left
end

F[2] = {
  load = function(s, v, i)
    if v then
      s.t, s.u, s.a, s.b = unpack(s.p.most and '<I7I7I7I7' or '<I7I7I4I4', v, i)
    end
    local p = s.p
    local window = p[3]
    if s.a + s.b == 0 or now >= s.t + 2 * window then
      s.t, s.a, s.b = now - (now - p[7]) % window, 0, 0
    elseif now >= s.t + window then
      s.t, s.a, s.b = s.t + window, 0, s.a
    end
  end,
  used = function(s)
    if s.b == 0 then
      return s.a
    end
    local window = s.p[3]
    return s.a + part(s.p, s.b, now > s.t and window - (now - s.t) or window)
  end,
  charge = function(s, n)
    s.a = s.a + n
    if s.a > MOST then
      local most = s.p.most or MOST
      s.a = s.a < most and s.a or most
    end
  end,
  empty = function(s)
    if s.a > 0 then
      return fits(s.p, s.t + s.p[3], s.a, 0)
    elseif s.b > 0 then
      return fits(s.p, s.t, s.b, 0)
    end
    return 0
  end,
  admits = function(s, n)
    local p = s.p
    if s.a + n <= p.cap then
      return fits(p, s.t, s.b, p.cap - n - s.a)
    end
    return fits(p, s.t + p[3], s.a, p.cap - n)
  end,
  save = function(s)
    return pack(s.p.most and '<I7I7I7I7' or '<I7I7I4I4', s.t, s.u, s.a, s.b)
  end,
}
