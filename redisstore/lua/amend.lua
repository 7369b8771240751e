-- A settlement: the holds of an id end with what was used. What the estimates were too much is given
-- back, from the latest parts first; what they were too little is charged, beyond the limits too.
--
-- Or an extension is taken back, where it is still the last.
--
-- ARGV[1] goes on: 1 if nothing is to change, or the end that the extension gave to the holds, then
-- for each limit what was used and a number of its rule, 0 if its estimate may be another than that of other
-- rules, and -1 if that is in shadow: then a check that it would have denied, which it was not charged, is not
-- charged by the settlement either; or the estimate and the end before the extension. Then how long
-- the id is remembered, 1 if an id that is not known is not charged, or 2 if it is charged whatever the check has
-- charged, since there is a number for each attribute, and for each of the ids the first and the last limit of its key. The ids are KEYS behind those of the limits. The answer is
-- the instant, what limiter.AmendState calls it, the cost for which an id stands or the estimate,
-- how many units were charged beyond a limit, and the estimate that is compared with others', 0 if none is, with
-- the number of its rule. Where two differ the answer has one as the estimate, and the other behind it. Then how many
-- ids of rules in force are known, and 32 times what their holds know of the check, see arith.Shape.
local DONE, REPEATED, CHARGED, UNKNOWN, SETTLED, DIFFERS = 0, 1, 2, 3, 4, 8
local UNLIKE = 32 -- of a shape: draws with different costs add up in one key
local limits = #ARGV - 1
local life, ignore, states = head[4 + 2 * limits], head[5 + 2 * limits], {}

-- overdraw charges n units whatever counts already. It returns how many were beyond the limit.
local function overdraw(s, n)
  become(s)
  local p, used, units = s.p, s.f.used(s), n
  local left = used < p.cap and p.cap - used or 0
  note(s, n)
  if p[1] == 3 then
    n = n < LOG and n or LOG
    local most = counted(s) + n < LOG and counted(s) + n or LOG
    grow(s, n, most > p[2] and most or p[2])
  elseif p[1] == 5 then
    local most = mostOf(p)
    s.f.charge(s, n < most and n or most)
    local q, r = muldiv(p[3], most, p[2])
    local at = notBefore(s)
    if s.t - at > q or s.t - at == q and s.a > r then
      s.t, s.a = at + q, r
      noted(s, at)
    end
  else
    s.f.charge(s, n)
  end
  return units > left and units - left or 0
end

-- retract takes an extension of the hold of an id back, which ended at an instant before. The parts that
-- it charged are the last.
local function retract(id, before)
  local g, h, more, rest, gone = of[id.first], id.hold, id.was - id.cost, {}, {}
  for _, part in ipairs(h.parts) do
    local raise = more > 0 and part.at == h.parts[#h.parts].at and part.cost == more
    table.insert(raise and gone or rest, part)
  end
  h.parts, h.over = rest, before > now and before or now + 1
  local over = h.over + (h.keep == 1 and life or 0)
  local _, at, _, bits, relied = entryOf(id.v)
  local v = entryFor(over, at, id.cost, bits, relied) .. fold(h)
  call('ZREM', g.holds, member(g, id.k, id.v))
  call('SET', id.k, v, 'PX', call('PTTL', id.k))
  call('ZADD', g.holds, whole(h.over), member(g, id.k, v))
  for _, part in ipairs(gone) do
    giveBack(g, part, part.cost, now)
  end
end

arrive(limits)
local known, estimate, over, inForce, shape = 0, nil, 0, 0, 0
eachID(function(id)
  id.cost, id.v = head[2 + 2 * id.first], call('GET', id.k)
  if id.v then
    local over, at, cost = entryOf(id.v)
    if over > now then
      id.at, id.was, id.hold, known = at, cost, openHold(id.v), known + 1
      estimate = estimate or id.hold and cost
      inForce = inForce + (head[3 + 2 * id.first] == -1 and 0 or 1)
      shape = id.hold and id.hold.shape > shape and id.hold.shape or shape
    end
  end
  ids[#ids + 1] = id
end)
if head[3] > 1 then
  for _, id in ipairs(ids) do
    local before = head[3 + 2 * id.first]
    if before > 0 and id.hold and id.hold.over == head[3] and id.was >= id.cost then
      retract(id, before)
    end
  end
  return {now, DONE, 0, 0, 0, 0, 0}
end
for _, id in ipairs(ids) do
  if id.was and not id.hold and id.was ~= id.cost then
    return {now, SETTLED, id.was, 0, 0, 0, 0}
  end
end
-- Products of two costs may be rounded, so their ratios are compared in lowest terms.
local function proportional(a, b, c, d)
  local function common(a, b)
    while b > 0 do
      a, b = b, math.fmod(a, b)
    end
    return a
  end
  local of, by = common(a, b), common(c, d)
  return a / of == c / by and b / of == d / by
end

local compared, rule, used, other = 0, 0, 0, 0 -- used: what the first that is compared is settled with
for _, id in ipairs(ids) do
  local n = head[3 + 2 * id.first]
  if id.hold and n > 0 then
    if compared > 0 and n ~= rule and other == 0 and not proportional(id.was, compared, id.cost, used) then
      other = id.was
    elseif compared == 0 then
      compared, rule, used = id.was, n, id.cost
    end
  end
end
if compared > 0 and shape >= UNLIKE then
  return {now, DIFFERS, compared, 0, compared, rule, inForce + 32 * shape}
elseif other > 0 then
  return {now, DIFFERS, compared, other, compared, rule, inForce + 32 * shape}
end
if ignore == 0 and known > 0 and (not estimate or shape > 0 and inForce == shape % UNLIKE) then
  ignore = 1 -- the check has charged no other keys, see arith.Shape, or it is settled already
end
if known == 0 and ignore == 1 then
  return {now, UNKNOWN, 0, 0, 0, 0, 0}
end
local charges = false
for _, id in ipairs(ids) do
  local shadow = head[3 + 2 * id.first] == -1
  id.more = 0
  if id.hold and not (shadow and #id.hold.parts == 0) then
    id.more = id.cost > id.was and id.cost - id.was or 0
  elseif not id.was and ignore ~= 1 and not (shadow and known > 0) then
    id.more = id.cost
    charges = charges or id.cost > 0
  end
  for i = id.first, id.more > 0 and id.last or 0 do
    states[i] = not ofSlots(i) and open(i) -- what was used is held no more
  end
end
if strays() then
  return {-2, now}
end
local state = charges and CHARGED or estimate and DONE or known > 0 and REPEATED or UNKNOWN
if head[3] == 1 then
  return {now, state, estimate or 0, 0, compared, rule, inForce + 32 * shape}
end
for _, id in ipairs(ids) do
  local g = of[id.first]
  if id.hold then
    call('ZREM', g.holds, member(g, id.k, id.v))
    mark(g, call('EXISTS', g.holds) == 1)
    local less, later = id.was - id.cost, {} -- later: units of each limit in parts that came later
    ending = id.hold.parts
    for j = #id.hold.parts, 1, -1 do
      local part = id.hold.parts[j]
      local after, back = later[part.limit] or 0, 0
      if isSlot(part) then
        giveBack(g, part, part.cost, now)
      elseif after < less then
        back = part.cost < less - after and part.cost or less - after
        part.gone = back == part.cost
        giveBack(g, part, back, now)
      end
      if back < part.cost then
        stays(g, part)
      end
      later[part.limit] = after + part.cost
    end
    ending = nil
  end
  for i = id.first, id.more > 0 and id.last or 0 do
    local beyond = states[i] and overdraw(states[i], id.more) or 0
    over = beyond > over and beyond or over
    if states[i] then
      write(states[i], emptyAt(states[i]))
    end
  end
  if id.hold or id.more > 0 then
    call('SET', id.k, entryFor(now + life, id.at or now, id.cost, 0, 2), 'PX', '' .. floor((life + 999) / 1000) + slack)
  end
end
return {now, state, estimate or 0, over, compared, rule, inForce + 32 * shape}
