-- Windows that begin with a hit: see hits.go in package limiter. If a hold gives back all of the hit with which a
-- window began, that begins with the next hit that stands. The parts of open holds say when theirs were. The
-- first hit since a window began that no open hold has made is in the hash of the key, in a field beside that of
-- the counter's times. What a refund takes back stays a hit.
local hold -- of a check that is to be held: see holds.lua
local ending -- parts that end in this script, or in what it tries; gone is set in those that have

local function byHit(s)
  return s.p[1] == 1 and s.p[8] == 1
end

-- finalHit returns the instant of the first such hit in the window of a state; nil if there is none.
local function finalHit(s)
  local tag, name = string.match(s.k, '^([^}]*})(.*)$')
  local at = tonumber(call('HMGET', tag .. '!past', name .. '!first')[1] or nil)
  return at and at >= s.t and at or nil
end

-- setFinalHit stores an instant as that. Without open holds nobody asks for it.
local function setFinalHit(s, at)
  local tag, name = string.match(s.k, '^([^}]*})(.*)$')
  local left = call('PTTL', tag .. '!holds')
  if left > 0 or hold then
    call('HSET', tag .. '!past', name .. '!first', string.format('%.0f', at))
    if call('PTTL', tag .. '!past') < left then
      call('PEXPIRE', tag .. '!past', left)
    end
  end
end

-- noteHit takes note of a hit before it is made, by a hold or not. Where no hold is open none was noted, but then
-- only one of this very instant matters.
local function noteHit(s, holds)
  if s.a == 0 and not holds and held[s.k] then
    setFinalHit(s, now) -- it opens the window
  elseif s.a == 0 or not holds and not held[s.k] or holds and (held[s.k] or s.t < now) then
    return
  elseif not finalHit(s) then
    setFinalHit(s, now)
  end
end

-- settledHit takes note that a part stands, though its hold is open no more.
local function settledHit(s, at)
  local first = finalHit(s)
  if at >= s.t and (not first or at < first) then
    setFinalHit(s, at)
  end
end

-- takeHit takes n units of a part back, of which rest units stay. counted names the limit in parts.
local function takeHit(s, at, n, rest, counted)
  if at < s.t then
    return
  end
  s.a = s.a - (n < s.a and n or s.a)
  if rest > 0 or at > s.t or s.a == 0 then
    return
  end
  local first = finalHit(s)
  local function stands(part)
    if part.limit == counted and not part.gone and part.at >= s.t and (not first or part.at < first) then
      first = part.at
    end
  end
  for _, part in ipairs(ending or {}) do
    stands(part)
  end
  for _, m in ipairs(ending and ending.all and {} or call('ZRANGE', string.match(s.k, '^[^}]*}') .. '!holds', 0, -1)) do
    local _, keep, parts = unpack('<I7I1I2', m)
    local form, bytes = '<I7I4c12', 23
    if keep % 4 >= 2 then
      form, bytes = '<I7I7c12', 26
    end
    for k = 0, parts - 1 do
      local of, _, limit = unpack(form, m, 11 + k * bytes)
      stands({at = of, limit = limit})
    end
  end
  if first then
    s.t = first < now and first or now
  end
end
