-- Ids of charges. For each key with a cost an entry remembers the charge that was made with an
-- id: the instant from which it is forgotten, that of the charge, its cost, a bit for each
-- limit of the key that was charged, and 1 if another attempt has relied on it, or 2 if it was settled.
-- A cost above 2^32-1 adds 4 to the last, and its upper part is behind it. A hold may follow: see holds.lua.
--
-- ARGV[1] goes on behind the limits: how long the id is remembered; 1 if the charge has further
-- keys elsewhere, so that this one may still be cancelled; and, for each of the ids, the first
-- and the last limit of its key. The ids are KEYS behind those of the limits. The answer has
-- three more numbers for each: instant, cost and bits of the charge that is remembered; or -1,
-- 0, 0 if it is remembered from now on; -2, the ticks until there may be room, and 0 if its hold finds none; -3, 0, 0 if its hold is over
-- and a limit on concurrency needs one; or 0, 0, 0.
local ids, number = {}, {} -- number: of each limit among those that are not remembered

-- eachID calls f for each id.
local function eachID(f)
  local limits = #ARGV - 1
  local at = 3 + 2 * limits
  for j = 1, (#head - at - 2) / 2 do
    f({k = KEYS[limits + j], first = head[at + 1 + 2 * j], last = head[at + 2 + 2 * j]})
  end
end

-- recall reads the ids. It returns for each limit whether it was charged before, and, unless the
-- id is remembered for all keys, the limits in an order in which those come last; and the mode. A
-- peek asks all of them. A check whose hold finds no room, or is over, becomes one, and so does mode 3: a
-- check that no limits admit, here or elsewhere, but whose hold may be over.
recall = function(mode)
  local limits, before, order, n, rest, asked = #ARGV - 1, {}, {}, 0, false, mode
  local elsewhere, refused, never = head[5 + 2 * limits], false, mode == 3
  if never then
    mode, asked = 1, 1
  end
  eachID(function(id)
    id.at, id.cost, id.bits = 0, 0, 0
    local v = call('GET', id.k)
    local over, was, cost, bits, relied = 0, 0, 0, 0, 0
    if v then
      over, was, cost, bits, relied = unpack('<I7I7I4I2I1', v)
      if relied >= 4 then
        relied, cost = relied - 4, cost + unpack('<I3', v, 22) * 4294967296
      end
    end
    if over > now then
      id.at, id.cost, id.bits = was, cost, bits
      if (asked ~= 1 or never) and spent and spent(id, v) then
        id.at, id.cost, id.bits, refused = -3, 0, 0, true
      elseif asked ~= 1 then
        for i = id.first, id.last do
          before[i] = true
        end
        if elsewhere == 1 and relied == 0 then
          call('SETRANGE', id.k, 20, cost > 4294967295 and '\5' or '\1')
        end
      end
    else
      rest = true
      local fits, ends = true, 0
      if room and asked ~= 1 then
        fits, ends = room(id)
      end
      if not fits then
        id.at, id.cost, mode = -2, ends - now, 1
      end
    end
    ids[#ids + 1] = id
  end)
  if refused then
    before, rest, mode = {}, true, 1
  end
  for i = 1, limits do
    if not before[i] then
      n = n + 1
      order[n], number[i] = i, n
    end
  end
  for i = 1, limits do
    if before[i] then
      n = n + 1
      order[n] = i
    end
  end
  return before, rest and order, mode
end

-- remember appends to an answer, and remembers the ids of a charge that was made. A receipt
-- names 64 limits, and so do ids.
remember = function(answer, made)
  local limits = #ARGV - 1
  local life = head[4 + 2 * limits]
  for j = 1, #ids do
    local id = ids[j]
    if extension then
      id.at, id.cost, id.bits = reserve(id, answer, made)
    elseif id.at == 0 and made and reserve then
      id.at = -1
      reserve(id, answer)
    elseif id.at == 0 and made then
      id.at = -1
      local bits = 0
      for i = id.first, id.last do
        if answer[3 * i - 1] % 8 >= 4 and number[i] <= 64 then
          bits = bits + 2 ^ (i - id.first)
        end
      end
      local cost, form, mark = head[2 + 2 * id.first], '<I7I7I4I2I1', 0
      if cost > 4294967295 then
        form, mark = '<I7I7I4I2I1I3', 4
      end
      call('SET', id.k, pack(form, now + life, now, cost % 4294967296, bits, mark, floor(cost / 4294967296)), 'PX', '' .. floor((life + 999) / 1000) + slack)
    end
    local at = 2 + 3 * (limits + j - 1)
    answer[at], answer[at + 1], answer[at + 2] = id.at, id.cost, id.bits or 0
  end
end
