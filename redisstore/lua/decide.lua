-- One decision: all limits that are not in shadow admit it, or none is charged
-- but for what count_rejected says.
--
-- ARGV[1] goes on: 0, 1 for a peek, 8 for one that writes nothing, or 2 where limits in shadow are not charged;
-- then for each limit its cost in units (0 peeks) and 1 if it is in shadow. The
-- answer is the instant and, for each limit, 8*remaining with 1 added if it
-- admits the cost, 2 if it is blocked and 4 if it was charged; the ticks until it
-- is as new; and those after which it admits the cost. The answer {-1} means that
-- a state is one of another limit, and {-3} that the key has holds, which the script does not know;
-- nothing was decided. Where a remaining number does not fit beside the others, the answer ends with one
-- more number for each limit: how often 2^32 units remain beyond those. The scripts that adopt or know holds have further KEYS, which they may
-- write: see leave and arrive.
local mode = head and head[3] or 0
if mode == 8 then
  mode, dry = 1, true
end
local states, allowed, shadowed = {false}, true, false
local before, order, settled -- with an id: which limits were charged before; all, unless all were, with those last
if arrive and not arrive(#ARGV - 1) then
  return {-1}
end
if extension then
  before, order, settled = extension()
elseif recall then
  before, order, mode = recall(mode)
end
if settled then
  return settled
end
for n = 1, order and #order or #ARGV - 1 do
  local i = order and order[n] or n
  if order and before[i] and not allowed then
    break -- they are not asked
  end
  local s = open(i)
  if not s then
    return {marked and -3 or -1}
  end
  states[i] = s
  if strays and strays() then
    return {-2, now}
  end
  local want = head and head[2 + 2 * i] or 1
  s.used = s.f.used(s)
  if s.u > now then
    s.blocked = true
  else
    s.allowed = s.used + (want > 0 and want or 1) <= s.p.cap
  end
  if not s.allowed and not (before and before[i]) then
    if head and head[3 + 2 * i] == 1 then
      shadowed = true
    else
      allowed = false
    end
    if before and mode ~= 1 and want > s.p.cap then
      mode = head[3 + 2 * i] == 1 and 2 or 1 -- the caller knows only of all limits
    end
  end
end

local answer, at, writes, high = {now, 0, 0, 0}, 1, false, false
for i = 1, #ARGV - 1 do
  local s = states[i]
  if s then
    local p, f, cost, charges, together = s.p, s.f, head and head[2 + 2 * i] or 1, mode ~= 1, allowed
    local count, flags = p[5], s.allowed and 1 or 0
    if head and head[3 + 2 * i] == 1 then
      charges, together = mode == 0, allowed and not shadowed
    end
    if before and before[i] then
      charges = false
    end
    if charges and cost > 0 then
      local charge = count == 2 or together and count == 0 or s.allowed and count == 1
      if charge then
        if s.want then
          become(s)
          p, f = s.p, s.f
        end
        if note then
          note(s, cost, not allowed)
        end
        f.charge(s, cost)
        flags, s.changed = flags + 4, true
        if count == 2 then
          s.used = f.used(s) -- it may have been more than there was room for
        else
          s.used = s.used + cost
        end
      end
      if p[6] > 0 and not s.allowed and not s.blocked then
        s.u, s.blocked, s.changed = now + p[6], true, true
      end
    end
    local capacity, want, left, retry = p.cap, cost > 0 and cost or 1, 0, 0
    if s.blocked then
      flags = flags + 2
    elseif s.used < capacity then
      left = capacity - s.used
      if left > MOST then
        high = high or {}
        high[i], left = floor(left / 4294967296), left % 4294967296
      end
    end
    if not (allowed and s.allowed) and want <= capacity then
      if s.used + want > capacity then
        s.again = f.admits(s, want)
        retry = s.again - now
      end
      if s.u - now > retry then
        retry = s.u - now
      end
    end
    local empties = emptyAt(s)
    if s.changed or s.adopted then
      s.empties, writes = empties, true
    end
    answer[at + 1], answer[at + 2], answer[at + 3] = left * 8 + flags, empties > now and empties - now or 0, retry
  else
    answer[at + 1], answer[at + 2], answer[at + 3] = 0, 0, 0
  end
  at = at + 3
end
if remember then
  remember(answer, allowed and mode ~= 1)
end
for i = 1, sooner and #ARGV - 1 or 0 do
  local s = states[i]
  if s and s.again > now and held[s.k] and s.p[1] ~= 8 then
    local cost = head and head[2 + 2 * i] or 1
    local at = sooner(i, s, cost > 0 and cost or 1, s.again)
    answer[1 + 3 * i] = (at > s.u and at or s.u) - now
  end
end
if high then
  for i = 1, #ARGV - 1 do
    answer[#answer + 1] = high[i] or 0
  end
end
if writes and not dry then
  for i = 1, #ARGV - 1 do
    if states[i] and states[i].empties then
      write(states[i], states[i].empties)
    end
  end
end
return answer
