-- fixed_window (1): t is the start of the window, a what was counted in it.

F[1] = {
  load = function(s, v, i)
    if v then
      s.t, s.u, s.a = unpack(s.p.most and '<I7I7I7' or '<I7I7I4', v, i)
    end
    local p = s.p
    if p[8] == 1 then
      if now >= s.t + p[3] then
        s.a = 0
      end
    elseif now >= s.t + p[3] or s.a == 0 then
      s.t, s.a = now - (now - p[7]) % p[3], 0
    end
  end,
  used = function(s)
    return s.a
  end,
  charge = function(s, n)
    if s.a == 0 and s.p[8] == 1 then
      s.t = now
    end
    s.a = s.a + n
    if s.a > MOST then
      local most = s.p.most or MOST
      s.a = s.a < most and s.a or most
    end
  end,
  empty = function(s)
    return s.a > 0 and s.t + s.p[3] or 0
  end,
  admits = function(s)
    return s.t + s.p[3]
  end,
  save = function(s)
    return pack(s.p.most and '<I7I7I7' or '<I7I7I4', s.t, s.u, s.a)
  end,
}
