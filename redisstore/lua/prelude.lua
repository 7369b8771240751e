-- What every script begins with. Numbers here are doubles: whole ones are exact
-- up to 2^53, and nothing else is ever computed with. Instants and spans are in
-- ticks of a microsecond. Units go to 2^53-1, and counts to 2^53, so one that is there is beyond.
-- A sum of two may be rounded where it is 2^53 or more, never to less than 2^53. So it may be
-- compared and bounded, but neither stored nor lowered.
--
-- ARGV[1] is a JSON list: the instant (-1: the server's clock), milliseconds by
-- which keys outlive their use, and what the script itself takes. Empty, it stands
-- for the most frequent check: by the server's clock, of cost 1, none of its limits
-- in shadow. ARGV[1+i] are
-- the parameters of the limit of KEYS[i], a JSON list again:
--
--   family, limit, window, capacity, count_rejected, block, and by family
--   1 fixed_window     shift of its windows, 1 if they begin with a hit
--   2 sliding_counter  shift of its windows, weight in thousandths, rounding
--   3 sliding_log      1
--   4 sliding_window   length of a sub-window; "window" is how long one counts
--   5 buckets          most units that a level may have
--   6 drip interval    most units that a level may have, units of a drip (none: 1)
--   7 calendar windows a hash of the calendar; then follows a list of four bounds
--   8 concurrency      1
--
-- A number behind that is the ceiling: how much of the capacity this check may use. A "v" behind both tells that the
-- request has chosen the number of the limit. States do not depend on them.
--
-- A limit or capacity above 2^32-1 makes a limit wide: its family is written as 8 more, and its
-- counts are packed in more bytes. A script of a version without wide limits has no such family, so it
-- fails rather than misread them.
--
-- A key's value is the text of those parameters and then its state, packed. So
-- a limit that changed is noticed, and its consumption carried over. While holds of the
-- key are open, the text begins with a brace, so that no script passes over them: see holds.lua.
local call, floor, sub = redis.call, math.floor, string.sub
local pack, unpack = struct.pack, struct.unpack
local MOST = 4294967295 -- units that a count can hold; of a wide limit p.most
local head, now, slack = false, -1, 0
if ARGV[1] ~= '' then
  head = cjson.decode(ARGV[1])
  now, slack = head[1], head[2]
end
if now < 0 then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
end

local ceilings, chosen = {}, {}
for i = 2, #ARGV do
  if string.byte(ARGV[i], -1) ~= 93 then -- a closing bracket
    local text, ceiling = string.match(ARGV[i], '^(.*%])(%d*)v?$')
    chosen[i - 1] = string.byte(ARGV[i], -1) == 118
    ARGV[i], ceilings[i - 1] = text or ARGV[i], ceiling
  end
end

-- muldiv returns a*b/d rounded down, and the rest, of whole numbers below 2^53. Where a
-- double cannot hold the product, the quotient found by division is wrong by a few at most, so
-- a*b - q*d is small, and is found from the doubles nearest to both products and what these lost.
-- Of a quotient of 2^53 or more only that much is known, and the rest is void.
local function muldiv(a, b, d)
  local p = a * b
  local q = floor(p / d)
  if p < 9007199254740992 then
    return q, p - q * d
  elseif q > 9007199254740994 then
    return q, 0
  end
  -- lost returns what a*b has beyond p, the double nearest to it, which is whole, too. (Dekker's product:
  -- halves of 26 bits with a sign, whose products and differences here are exact.)
  local function lost(a, b, p)
    local a1, b1 = 134217729 * a, 134217729 * b
    a1, b1 = a1 - (a1 - a), b1 - (b1 - b)
    local a0, b0 = a - a1, b - b1
    return a1 * b1 - p + a1 * b0 + a0 * b1 + a0 * b0
  end
  local more = lost(a, b, p)
  while true do
    local m = q * d
    local r = p - m + (more - lost(q, d, m))
    if r < 0 then
      q = q - 1
    elseif r < d or q >= 9007199254740992 then
      return q, r
    else
      q = q + 1
    end
  end
end

-- mostOf returns the most units that the level of a bucket may have, see limiter.Overdraw: a full one's, and what
-- leaks in a day, in a window, or until a full one is empty, whichever is most. It is at most one more than leaks in a
-- century, and 2^53. The parameter has what leaks in a century, or 2^32-1 in place of more if the limit is not wide.
local function mostOf(p)
  local units = p[7] ~= MOST and p[7] or muldiv(3153600000000000, p[2], p[3])
  local debt = muldiv(86400000000, p[2], p[3])
  debt = debt > p[2] and debt or p[2]
  debt = p[4] + (debt > p[4] and debt or p[4])
  units = units < 9007199254740991 and units + 1 or 9007199254740992
  return units < debt and units or debt
end

-- F has the families. Of each, load reads the state at byte i of a value (nil:
-- there is none) and forgets what no longer counts; used, charge, empty and admits
-- are those of package limiter; save returns the state, packed. A state has its
-- key k, the parameters p and their text, the functions f of its family, the end of
-- its block u, and what its family has. Tables are made with all their fields, for
-- Lua makes one anew for every few that are added later.
local F = {false, false, false, false, false, false, false, false}
local split, strays -- of calendar windows: takes their bounds off; see calendar.lua
local recall, remember -- ids of charges; see ids.lua
local held, arrive, room, spent, reserve, extension, sooner -- holds; see holds.lua
local opened -- keys of counters that had holds as the script began, and were not written since
local note, kept -- what becomes of what holds have charged; see since.lua
local adopt -- makes a state of another limit one of this; nil: the script cannot
local become -- does so before a charge with what adopt has left as it was
local dry = false -- nothing is to be written
local mend -- loads a state, or drops it if it is not readable; nil: the script fails
local marked = false -- a state was left unread because its key has holds

-- open reads the state of limit i. It returns nothing where a state is one of
-- another limit and the script cannot adopt it.
local function open(i)
  local text, bounds = ARGV[i + 1], nil
  if split then
    local begins = sub(text, 1, 3)
    if begins == '[7,' or begins == '[15' then
      text, bounds = split(text)
    end
  end
  local p = cjson.decode(text)
  local family = p[1]
  if family > 8 then
    family = family - 8
    p[1], p.most = family, 9007199254740992
  end
  p.cap = tonumber(ceilings[i]) or p[4]
  local f, v = F[family]
  local s = {
    k = KEYS[i], text = text, p = p, f = f, t = 0, u = 0, a = 0, b = 0, e = 0, c = bounds, name = false, found = true, adopted = false,
    used = 0, again = 0, allowed = false, blocked = false, changed = false, empties = false
  }
  if family == 3 or family == 4 then
    v = call('GETRANGE', s.k, 0, 1199)
    v = v ~= '' and v
  else
    v = call('GET', s.k)
  end
  if held and v then
    s.plain = opened[s.k] and sub(v, 1, 1) == '['
    v = '[' .. sub(v, 2)
  end
  if not v then
    s.found = false
    f.load(s)
  elseif sub(v, 1, #text) == text then
    if mend then
      mend(s, v, #text + 1)
    else
      f.load(s, v, #text + 1)
    end
  else
    marked = sub(v, 1, 1) == '{'
    return adopt and adopt(s, v, chosen[i])
  end
  return s
end

-- emptyAt returns the instant from which the state equals none.
local function emptyAt(s)
  local at = s.f.empty(s)
  if s.u > at then
    return s.u
  end
  return at
end

-- write stores a state that is empty at the given instant. Where memory is out
-- the first write of a script fails, so that it has changed nothing.
local function write(s, at)
  if kept then
    kept(s.k)
    opened[s.k] = nil
  end
  if at <= now then
    call('DEL', s.k)
    return
  end
  local ttl = floor((at - now + 999) / 1000) + slack
  local v, text = s.f.save(s, ttl), s.text
  if held and held[s.k] then
    text = '{' .. sub(text, 2)
  end
  if v then
    call('SET', s.k, text .. v, 'PX', '' .. ttl)
  elseif held then
    call('SETRANGE', s.k, 0, sub(text, 1, 1)) -- a long list was changed in its place
  end
end
