-- A state that was made by another limit of the same name becomes one of this:
-- where both count alike it stays as it is, otherwise all that counts now is
-- charged to this limit now, also beyond it, and what may be more than its count says is
-- all of this limit. Nothing more is admitted than the larger of the two
-- would have left. The result is stored even by a peek, since what is converted
-- later would count for longer. What arith.Stays tells of stays as it is.
--
-- What holds have of a limit on concurrency is held still when the limit changes back: an entry of the key has
-- the name of the counter that they charged, see concurrency.lua.
--
-- Where a charge is worth something else from now on, receipts from before are void from
-- now on. The limit may change back, and what they name may be forgotten by then. An
-- entry of the key has the instant, for as long as they could take anything back. For what is held another one has it.

-- rescale carries a bucket's level from the parameters old over to p, in units
-- and rounded up.
local function rescale(s, p, old)
  if p[2] == old[2] and p[3] == old[3] then
    return
  end
  local units, rest, part = 0, s.a, 0
  if s.t < now then
    rest = 0
  else
    units, part = muldiv(ahead(s, old, now), old[2], old[3])
    rest = part + s.a % old[3]
    units, rest = units + floor(s.a / old[3]) + floor(rest / old[3]), rest % old[3]
  end
  local most = mostOf(p)
  if units >= most then
    units, rest = most, 0
  end
  local more, over = muldiv(p[3], rest, old[3])
  if over > 0 then
    more = more + 1
  end
  local q, r = muldiv(p[3], units, p[2])
  q, r = q + floor(more / p[2]), r - (p[2] - more % p[2])
  if r < 0 then
    s.t, s.a = now + q, r + p[2]
  else
    s.t, s.a = now + q + 1, r
  end
end

-- alike tells whether a state of the parameters old means the same to p.
local function alike(p, old)
  local f = p[1]
  if p.most ~= old.most and f ~= 8 then
    return false -- a count of the one may be too large for the other
  elseif f == 2 and old[1] == 1 then
    return p[3] == old[3] and old[8] == 0
  elseif f ~= old[1] then
    return false
  elseif f == 1 then
    return p[3] == old[3] and p[8] == old[8]
  elseif f == 7 then
    return p[7] == old[7]
  elseif f == 2 then
    return p[3] == old[3]
  elseif f == 4 then
    return p[3] == old[3] and p[7] == old[7]
  end
  return true
end

-- left notes in a hash of a key that what counted by one name up to now is void, and what is from before now by
-- another one. Beyond so many names all is void. Names begin as given there. It lasts for some milliseconds.
local function left(key, as, was, is, most, wait)
  local ttl = call('PTTL', key)
  if call('HLEN', key) >= most then
    call('DEL', key)
    was, is = '*', false
  end
  if is and tonumber(call('HMGET', key, as .. is)[1] or 0) < now then
    call('HSET', key, as .. is, whole(now))
  end
  if was then
    call('HSET', key, as .. was, whole(now + 1))
  end
  call('PEXPIRE', key, whole(ttl > wait and ttl or wait))
end

-- lasting returns for how long a counter with the parameters p can have a unit.
local function lasting(p)
  if p[1] ~= 5 and p[1] ~= 6 then
    return 2 * p[3]
  end
  local t = muldiv(p[3], mostOf(p), p[2])
  return t + p[3]
end

-- leave makes receipts void that are from up to now, of a state that counted so and would
-- be empty at an instant, and those from before now of what counts from now on, with the parameters p: of a state that
-- is empty already, too, else they would take back what others charge. Where parts are given, the names by
-- which holds know the one and the other, what they have charged is void, too, for as long as holds are open. If both
-- are one name, the hold of this very check stays good.
local function leave(s, counted, counts, p, parts, empties)
  local tag, wait = string.match(s.k, '^[^}]*}'), lasting(p)
  wait = empties - now > wait and empties - now or wait
  left(tag .. '!left', '', counted, counts, 64, floor((wait + 999) / 1000) + slack)
  local open = parts and call('PTTL', tag .. '!holds') or 0
  if open > 0 then
    left(tag .. '!past', '-', (parts[1] ~= parts[2] or s.t == now) and parts[1], parts[2], 1024, open)
  end
end

-- follow makes of the times of a bucket with the parameters old those of one with p, each level rounded down. It is
-- called before the state changes, see arith.Follow.
local function follow(s, p, old)
  note(s, 0)
  local times, over = pastOf(s.k), 0
  local same = p[2] == old[2] and p[3] == old[3]
  if not same or p[1] == 6 then
    over = s.f.used(s) - mostOf(p)
  end
  for _, time in ipairs(same and {} or times) do
    if p[1] == 5 and time.t < NONE then
      local units, rest = muldiv(time.t, old[2], old[3])
      rest = rest + time.a
      units, rest = units + floor(rest / old[3]), rest % old[3]
      local t, a = muldiv(p[3], units, p[2])
      a = a + muldiv(p[3], rest, old[3])
      time.t, time.a = t + floor(a / p[2]), a % p[2]
    end
  end
  if over > 0 and #times > 0 then
    times[#times].lost = times[#times].lost + over
  end
  times.changed = true
end

-- What something else has written is dropped, so that its counter begins anew: a value of another type
-- than the end of its name says, and, in mend, one without the form of its limit.
local TYPES = {['!holds'] = 'zset', ['!left'] = 'hash', ['!past'] = 'hash'}
for _, k in ipairs(KEYS) do
  local type = call('TYPE', k).ok
  if type ~= 'none' and type ~= (TYPES[string.match(k, '}(.*)$')] or 'string') then
    call('DEL', k)
  end
end

-- anew begins a state anew.
local function anew(s)
  call('DEL', s.k)
  s.found = false
  s.f.load(s)
  return s
end

mend = function(s, v, i)
  if not pcall(s.f.load, s, v, i) then
    anew(s)
  end
end

-- lasts is arith.Stays, of a state s of the parameters old.
local function lasts(s, p, old, chosen)
  if p[1] ~= old[1] or p[1] ~= 5 and p[1] ~= 6 then
    return false
  elseif chosen and p[3] == old[3] and p[5] == old[5] and p[6] == old[6] and p[8] == old[8] then
    return true
  end
  return s.f.used(s) > mostOf(p)
end

-- convert makes a state of the parameters old, whose text is was, one of p.
local function convert(s, p, old, was, bounds)
  local counts, f = s.f.used(s), p[1]
  local empties = emptyAt(s)
  local over = empties <= now
  if old[1] == 8 and f ~= 8 and s.name and not dry then
    leaveSlots(s)
  end
  local full = old[1] == 3 and logMost(old) or (old[1] == 5 or old[1] == 6) and mostOf(old) or old.most or MOST
  local bounded = (old[1] == 2 and (s.a > s.b and s.a or s.b) or counts) >= full
  if bounded and counts < p[4] then
    counts = p[4]
  end
  local counted, is = worth(s.k, old, was), worth(s.k, p, s.text)
  if is ~= counted and not dry then
    local parts = {partly(s.k, old, was), partly(s.k, p, s.text)}
    local like = alike(p, old) and parts[1] == parts[2] and not (f == 3 and bounded) -- see arith.Follow
    leave(s, counted, is, p, not like and parts or nil, empties)
    if held[s.k] and not like then
      forget(s.k)
    elseif held[s.k] and (f == 5 or f == 6) then
      follow(s, p, old)
    end
  end
  s.p, s.f, s.c = p, F[f], bounds
  if s.u <= now or p[6] == 0 then
    s.u = 0
  end
  if not over and alike(p, old) then
    if f == 5 then
      s.b = 0
      rescale(s, p, old)
    elseif f == 6 then
      s.t = now
      local most = mostOf(p)
      s.a = s.a < most and s.a or most
    else
      s.f.load(s) -- by its own window
    end
    if f == 8 and s.name and p.most ~= old.most then
      recount(s)
    end
    return s
  end
  s.t, s.a, s.b, s.n, s.baseHigh, s.lastHigh = 0, 0, 0, nil, nil, nil
  s.f.load(s)
  if f == 8 or old[1] == 8 then
    counts = 0 -- what is held is no use, and no use is held
  end
  local most = f == 3 and LOG or (f == 5 or f == 6) and mostOf(p) or p.most or MOST
  counts = counts < most and counts or most
  if counts > 0 and not over and f == 3 then
    grow(s, counts, counts > p[2] and counts or p[2])
  elseif counts > 0 and not over then
    s.f.charge(s, counts)
  end
  return s
end

adopt = function(s, v, chosen)
  local p, close = s.p, string.find(v, ']', 1, true)
  local read, old = pcall(parse, sub(v, 1, close or 0))
  if not read or not F[old[1]] then
    return anew(s)
  end
  local bounds, was = s.c, sub(v, 1, close)
  s.p, s.c, s.adopted = old, nil, true
  s.f = F[old[1]]
  if not pcall(s.f.load, s, v, close + 1) then
    s.p, s.c, s.f = p, bounds, F[p[1]]
    return anew(s)
  end
  if not lasts(s, p, old, chosen) then
    return convert(s, p, old, was, bounds)
  end
  s.want, s.text, s.adopted = {p, s.text}, was, false
  old.cap, old[5], old[6] = p.cap, p[5], p[6]
  return s
end

become = function(s)
  local want, old, was = s.want, s.p, s.text
  s.want = nil
  if want and not lasts(s, want[1], old) then
    s.text, s.adopted = want[2], true
    convert(s, want[1], old, was)
  end
end
