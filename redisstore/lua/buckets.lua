-- token_bucket, continuous leaky_bucket and gcra (5), which are one arithmetic:
-- t and a are the theoretical arrival time, in ticks and 1/limit ticks.

F[5] = {
  load = function(s, v, i)
    if v then
      s.t, s.u, s.a = unpack('<I7I7I4', v, i)
    end
  end,
  used = function(s)
    if s.t < now then
      return 0
    end
    local window = s.p[3]
    local q, r = muldiv(s.t - now, s.p[2], window)
    return q + floor((r + s.a + window - 1) / window)
  end,
  charge = function(s, n)
    local p = s.p
    local limit = p[2]
    if s.t < now then
      s.t, s.a = now, 0
    end
    local q, r = muldiv(p[3], n, limit)
    local ahead, part = s.t - now + q, s.a + r
    if part >= limit then
      ahead, part = ahead + 1, part - limit
    end
    if p[5] == 2 then
      q, r = muldiv(p[3], p[7], limit)
      if ahead > q or ahead == q and part > r then
        ahead, part = q, r
      end
    end
    s.t, s.a = now + ahead, part
  end,
  empty = function(s)
    return s.a > 0 and s.t + 1 or s.t
  end,
  admits = function(s, n)
    local p = s.p
    local q, r = muldiv(p[3], p[4] - n, p[2])
    if r < s.a then
      q = q - 1
    end
    return s.t - q
  end,
  save = function(s)
    return pack('<I7I7I4', s.t, s.u, s.a)
  end,
}
