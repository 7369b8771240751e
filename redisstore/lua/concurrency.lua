-- concurrency (8): a is how many units the holds of the key have charged, and name is what their parts
-- name the counter by. It is a new one for each counter that begins, also after a reset, so what
-- a hold gives back later is of the counter that it charged. b is what this check charges: no
-- unit unless the check is held. The instants are those of the holds, in the set of the key.

-- holding calls f for the parts of open holds that charged a counter, from the first end on, or from the last
-- one back, until f returns true.
local function holding(s, back, f)
  local key, from, size = string.match(s.k, '^[^}]*}') .. '!holds', 0, 1
  while s.name do
    local some
    if back then
      some = call('ZRANGE', key, -from - size, -from - 1)
    else
      some = call('ZRANGE', key, from, from + size - 1)
    end
    for i = 1, #some do
      for _, part in ipairs(unfold(some[back and #some + 1 - i or i], 1).parts) do
        if part.limit == s.name and f(part) then
          return
        end
      end
    end
    if #some < size then
      return
    end
    from, size = from + size, 64
  end
end

F[8] = {
  load = function(s, v, i)
    if v then
      s.u, s.a, s.name = unpack(s.p.most and '<I7I7c12' or '<I7I4c12', v, i)
    end
    if not held[s.k] then
      s.a = 0
    end
    if s.a == 0 then
      s.name = false
    end
  end,
  used = function(s)
    return s.a
  end,
  charge = function(s, n)
    if hold then
      s.b, s.t, slots[s.k] = n, now + hold[1], s
      s.name = s.name or 's' .. sub(redis.sha1hex(whole(now) .. s.k .. ids[1].k), 1, 11)
    end
  end,
  empty = function(s)
    local last = s.b > 0 and s.t or 0
    if s.a > 0 then
      holding(s, true, function(part)
        last = part.over > last and part.over or last
        return true
      end)
    end
    return last
  end,
  admits = function(s, n)
    local over, at = s.a - (s.p[4] - n), now
    holding(s, false, function(part)
      over, at = over - part.cost, part.over
      return over <= 0
    end)
    return at
  end,
  save = function(s)
    return pack(s.p.most and '<I7I7' or '<I7I4', s.u, s.a) .. (s.name or '            ')
  end,
}
