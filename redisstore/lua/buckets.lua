-- token_bucket, continuous leaky_bucket and gcra (5), which are one arithmetic:
-- t and a are the theoretical arrival time, in ticks and 1/limit ticks, and b is how
-- long before it the last charge was, in grains, rounded up; 0 if that is not known. What is beyond FINE counts coarse
-- grains, for a debt that takes longer to leak than a full bucket. It matters where instants go back: until the last charge nothing leaks. A value of an
-- earlier version has no b.

local FINE = MOST - 268435456

-- grain returns what b is counted in, coarse what the part of it beyond FINE is.
local function grain(p)
  return floor(muldiv(p[3], p[4], p[2]) / 4294967296) + 1
end
local function coarse(p)
  return floor((muldiv(p[3], mostOf(p), p[2]) + 1) / 134217728) + 1
end

-- before returns in how many grains of which length b counts.
local function before(s)
  if s.b > FINE then
    return s.b - FINE, coarse(s.p)
  end
  return s.b, grain(s.p)
end

-- notBefore returns now, or the instant of the last charge if that is later.
local function notBefore(s)
  if s.b > 0 then
    local n, g = before(s)
    local at = s.t - n * g
    return at > now and at or now
  end
  return now
end

-- chargedBy returns the instant of the last charge, or one up to a grain later; if it is not known, now.
local function chargedBy(s)
  local n, g = before(s)
  local at = s.b > 0 and s.t - (n - 1) * g - 1 or now
  return at < now and at or now
end

-- noted notes that the last charge was at an instant.
local function noted(s, at)
  local g, n = grain(s.p), s.t > at and s.t - at or 0
  s.b = floor((n + g - 1) / g)
  if s.b > FINE then
    g = coarse(s.p)
    s.b = n <= g * 268435456 and FINE + floor((n + g - 1) / g) or 0
  end
end

F[5] = {
  load = function(s, v, i)
    if v then
      if s.p.most then
        s.t, s.u, s.a, s.b = unpack('<I7I7I7I4', v, i)
      else
        s.t, s.u, s.a = unpack('<I7I7I4', v, i)
        s.b = #v >= i + 21 and unpack('<I4', v, i + 18) or 0
      end
    end
  end,
  used = function(s)
    local at = notBefore(s)
    if s.t < at then
      return 0
    end
    local window = s.p[3]
    local q, r = muldiv(s.t - at, s.p[2], window)
    return q + (1 - floor((window - r - s.a) / window)) -- rounded up
  end,
  charge = function(s, n)
    local p = s.p
    local limit, at = p[2], notBefore(s)
    if s.t < at then
      s.t, s.a = at, 0
    end
    local q, r = muldiv(p[3], n, limit)
    local ahead, part = s.t - at + q, r - (limit - s.a)
    if part >= 0 then
      ahead = ahead + 1
    else
      part = part + limit
    end
    if p[5] == 2 then
      q, r = muldiv(p[3], mostOf(p), limit)
      if ahead > q or ahead == q and part > r then
        ahead, part = q, r
      end
    end
    s.t, s.a = at + ahead, part
    noted(s, at)
  end,
  empty = function(s)
    return s.a > 0 and s.t + 1 or s.t
  end,
  admits = function(s, n)
    local p = s.p
    local q, r = muldiv(p[3], p.cap - n, p[2])
    if r < s.a then
      q = q - 1
    end
    return s.t - q
  end,
  save = function(s)
    return pack(s.p.most and '<I7I7I7I4' or '<I7I7I4I4', s.t, s.u, s.a, s.b)
  end,
}
