-- concurrency (8): a is how many units the holds of the key have charged, and name is what their parts
-- name the counter by. It is a new one for each counter that begins, also after a reset, so what
-- a hold gives back later is of the counter that it charged. b is what this check charges: no
-- unit unless the check is held. The instants are those of the holds, in the set of the key.
--
-- A limit that was one on concurrency before, and is again, goes on with the counter that it had: what is
-- held of that is held still.

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

-- recount lets a counter count what open holds have charged to it.
recount = function(s)
  local most = s.p.most or MOST
  s.a, recounted[s.k] = 0, true
  holding(s, false, function(part)
    s.a = s.a + part.cost
  end)
  s.a = s.a < most and s.a or most
end

-- leaveSlots notes the name of a counter whose limit becomes another one, for as long as holds of the key are open.
leaveSlots = function(s)
  local tag, name = string.match(s.k, '^([^}]*})(.*)$')
  local left, open = call('PTTL', tag .. '!past'), call('PTTL', tag .. '!holds')
  call('HSET', tag .. '!past', '=' .. name, s.name .. whole(now))
  call('PEXPIRE', tag .. '!past', '' .. (left > open and left or open))
end

-- resume takes up the counter that was left, unless the key was reset since.
local function resume(s)
  local tag, name = string.match(s.k, '^([^}]*})(.*)$')
  local was = call('HMGET', tag .. '!past', '=' .. name)[1]
  if was and tonumber(sub(was, 13)) >= tonumber(call('GET', tag .. '!reset') or 0) then
    s.name = sub(was, 1, 12)
    recount(s)
  end
end

F[8] = {
  load = function(s, v, i)
    if v then
      s.u, s.a, s.name = unpack(s.p.most and '<I7I7c12' or '<I7I4c12', v, i)
    elseif held[s.k] and not s.name then
      resume(s)
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
