-- fixed_window with calendar windows (7): t is the start of the window, e its end, a
-- what was counted in it. The bounds of windows come with the call. They are computed
-- around an estimate of the clock; if that was wrong by more than a window, nothing is
-- decided, and the caller asks again with bounds around the right instant.
local away = false -- now lies outside of some bounds

split = function(text)
  local close = string.find(text, ']', 1, true)
  return sub(text, 1, close), cjson.decode(sub(text, close + 1))
end

-- ends returns start and end of the window that contains at.
local function ends(s, at)
  local c = s.c
  for i = 3, 1, -1 do
    if at >= c[i] then
      if at >= c[i + 1] then
        break
      end
      return c[i], c[i + 1]
    end
  end
  away = true
  return c[2], c[3]
end

strays = function()
  return away
end

F[7] = {
  load = function(s, v, i)
    if v then
      s.t, s.e, s.u, s.a = unpack(s.p.most and '<I7I7I7I7' or '<I7I7I7I4', v, i)
    end
    if s.c then
      local from, to = ends(s, now)
      if s.a == 0 or from > s.t then
        s.t, s.e, s.a = from, to, 0
      end
    elseif now >= s.e then -- a state of another limit, which is being adopted
      s.a = 0
    end
  end,
  used = function(s)
    return s.a
  end,
  charge = function(s, n)
    s.a = s.a + n
    if s.a > MOST then
      local most = s.p.most or MOST
      s.a = s.a < most and s.a or most
    end
  end,
  empty = function(s)
    return s.a > 0 and s.e or 0
  end,
  admits = function(s)
    return s.e
  end,
  save = function(s)
    return pack(s.p.most and '<I7I7I7I7' or '<I7I7I7I4', s.t, s.e, s.u, s.a)
  end,
}
