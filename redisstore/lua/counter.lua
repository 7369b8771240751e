-- sliding_counter (2). What the previous window still counts is rounded up where
-- it is not rounded at all: since all else is whole, that decides alike.

local function tail(s)
  if s.b == 0 then
    return 0
  end
  local p = s.p
  local window, rounding = p[3], p[9]
  local left = window
  if now > s.t then
    left = window - (now - s.t)
  end
  if p[8] == 1000 then
    local q, r = muldiv(left, s.b, window)
    if rounding == 1 or r == 0 or rounding == 2 and 2 * r < window then
      return q
    end
    return q + 1
  end
  local q, r = muldiv(left, s.b * p[8], window)
  if rounding == 1 then
    return floor(q / 1000)
  elseif rounding == 2 then
    return floor((q + 500) / 1000)
  end
  return floor((q + (r > 0 and 1000 or 999)) / 1000)
end

-- fits returns the first instant of the window from t at which the part of
-- previous is at most room: window - (units*window - less) / (previous*weight).
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
  if units > rate then
    return t
  end
  local q, r = muldiv(window, units, rate)
  if r < less then
    q = q - 1
  end
  return t + window - q
end

F[2] = {
  load = function(s, v, i)
    if v then
      s.t, s.u, s.a, s.b = unpack('<I7I7I4I4', v, i)
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
    return s.a + tail(s)
  end,
  charge = function(s, n)
    s.a = s.a + n
    if s.a > MOST then
      s.a = MOST
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
    if s.a + n <= p[2] then
      return fits(p, s.t, s.b, p[2] - n - s.a)
    end
    return fits(p, s.t + p[3], s.a, p[2] - n)
  end,
  save = function(s)
    return pack('<I7I7I4I4', s.t, s.u, s.a, s.b)
  end,
}
