-- FROZEN: processes of different versions share a server. What all general scripts begin with.
-- KEYS: 1 the claim, 2 info, 3 writer, 4 queue, 5 places
--
-- What the claim's key may be:
--   string  token:kind:number:label   an exclusive claim; kind t: number is the TTL it was set with
--           (ms), f: its fence, s: when it was granted (ms). Any other string is of somebody else.
--   hash    o:owner -> count, t:token -> expires:fence:since:label, f -> fence. An exclusive owner.
--           Without t: fields it is of somebody else (Redisson).
--   zset    token -> expires: readers or permits. info: mode, last (fence), ctoken ->
--           fence:since:label.
-- queue: mode token -> ticket; places: the same -> until when the place stands.
-- All times are the server's: ms, fences us.
local base, info, writer, queue, places = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local clock = redis.call('TIME')
local now_us = tonumber(clock[1]) * 1000000 + tonumber(clock[2])
local now = math.floor(now_us / 1000)

-- Lua would write numbers of this size with an exponent.
local function digits(number)
  return string.format('%.0f', number)
end

local function sees_string()
  local value = redis.call('GET', base)
  local token, form, number, label = string.match(value, '^(%x+):([tfs]):(%d+):(.*)$')
  if not token or #token ~= 32 then
    return { kind = 'foreign', mode = 'x', live = 1 }
  end
  return { kind = 'string', mode = 'x', live = 1, token = token, form = form,
    number = tonumber(number), label = label }
end

local function sees_hash()
  local all = redis.call('HGETALL', base)
  local seen = { kind = 'hash', mode = 'x', live = 0, claims = {}, dead = {}, ours = false }
  for i = 1, #all, 2 do
    local sort, name = string.sub(all[i], 1, 2), string.sub(all[i], 3)
    if sort == 'o:' then
      seen.owner = name
    elseif all[i] == 'f' then
      seen.fence = tonumber(all[i + 1])
    elseif sort == 't:' then
      local expires, fence, since, label = string.match(all[i + 1], '^(%d+):(%d+):(%d+):(.*)$')
      if expires then
        seen.ours = true
        if tonumber(expires) > now then
          seen.live = seen.live + 1
          seen.claims[name] = { token = name, expires = tonumber(expires),
            fence = tonumber(fence), since = tonumber(since), label = label }
        else
          seen.dead[#seen.dead + 1] = name
        end
      end
    end
  end
  if not seen.ours then
    return { kind = 'foreign', mode = 'x', live = 1 }
  end
  return seen
end

local function sees_zset()
  local mode = redis.call('HGET', info, 'mode')
  if not mode then
    return { kind = 'other', sort = 'zset', live = 0 }
  end
  return { kind = 'zset', mode = mode, live = redis.call('ZCOUNT', base, '(' .. digits(now), '+inf') }
end

-- What stands at the claim's key. Writes nothing.
local function see()
  local sort = redis.call('TYPE', base).ok
  if sort == 'none' then
    return { kind = 'none', live = 0 }
  elseif sort == 'string' then
    return sees_string()
  elseif sort == 'hash' then
    return sees_hash()
  elseif sort == 'zset' then
    return sees_zset()
  end
  return { kind = 'other', sort = sort, live = 0 }
end

-- One claim of a zset.
local function claim_of(token)
  local expires = redis.call('ZSCORE', base, token)
  local note = redis.call('HGET', info, 'c' .. token)
  local fence, since, label = string.match(note or '', '^(%d+):(%d+):(.*)$')
  return { token = token, expires = tonumber(expires), fence = tonumber(fence or 0),
    since = tonumber(since or now), label = label or '' }
end

-- The claim of a hash or zset that has held longest; of many readers, any one, since looking
-- through all of them would make every look slower with every reader.
local function oldest(seen, all)
  local first
  local function take(claim)
    if not first or claim.fence < first.fence
      or (claim.fence == first.fence and claim.since < first.since) then
      first = claim
    end
  end
  if seen.kind == 'hash' then
    for _, claim in pairs(seen.claims) do
      take(claim)
    end
  else
    local most = (all or seen.live <= 32) and -1 or 0
    local tokens = redis.call('ZRANGEBYSCORE', base, '(' .. digits(now), '+inf', 'LIMIT', 0, most == -1 and -1 or 1)
    for _, token in ipairs(tokens) do
      take(claim_of(token))
    end
  end
  return first
end

-- How many places stand in the queue; -1 if there is none.
local function waiting()
  local count = redis.call('ZCOUNT', places, '(' .. digits(now), '+inf')
  return count > 0 and count or -1
end

-- kind, mode, holders, token, fence, label, held for, expires in, waiting
local function describe(seen, all)
  local left = redis.call('PTTL', base)
  if left < 0 then
    left = -1
  end
  if seen.kind == 'foreign' then
    return { 'foreign', 'x', 1, '', 0, '', -1, left, waiting() }
  elseif seen.kind == 'string' then
    local fence, held = 0, -1
    if seen.form == 'f' then
      fence, held = seen.number, math.floor((now_us - seen.number) / 1000)
    elseif seen.form == 's' then
      held = now - seen.number
    elseif left >= 0 then
      held = seen.number - left
    end
    return { 'string', 'x', 1, seen.token, fence, seen.label, math.max(held, 0), left, waiting() }
  end
  local claim = oldest(seen, all)
  return { seen.kind, seen.mode, seen.live, claim.token, claim.fence, claim.label,
    math.max(now - claim.since, 0), left, waiting() }
end

-- A zset's keys go with its last claim; without one, at once.
local function keep_zset()
  local last = redis.call('ZRANGE', base, -1, -1, 'WITHSCORES')
  if last[2] then
    -- How a server writes a score is its own affair; PEXPIREAT takes digits only.
    local ends = digits(tonumber(last[2]))
    redis.call('PEXPIREAT', base, ends)
    redis.call('PEXPIREAT', info, ends)
  else
    redis.call('DEL', base, info)
  end
end

-- Takes away what is over: claims of a zset or hash.
local function purge(seen)
  if seen.kind == 'zset' then
    while true do
      local dead = redis.call('ZRANGEBYSCORE', base, '-inf', digits(now), 'LIMIT', 0, 100)
      if #dead == 0 then
        break
      end
      for _, token in ipairs(dead) do
        redis.call('ZREM', base, token)
        redis.call('HDEL', info, 'c' .. token)
      end
    end
    if seen.live == 0 then
      redis.call('DEL', base)
    end
  elseif seen.kind == 'hash' then
    for _, token in ipairs(seen.dead) do
      redis.call('HDEL', base, 't:' .. token)
      if seen.owner then
        redis.call('HINCRBY', base, 'o:' .. seen.owner, -1)
      end
    end
    if seen.live == 0 then
      redis.call('DEL', base)
    end
  end
end

-- A hash's key goes with its last claim: Redisson waits for the key, whatever is in it.
local function keep_hash(claims)
  local last = 0
  for _, claim in pairs(claims) do
    last = math.max(last, claim.expires)
  end
  redis.call('PEXPIREAT', base, digits(last))
end

-- Takes away places that were not asked for again. At most so many at once: the rest goes next
-- time.
local function purge_places()
  local dead = redis.call('ZRANGEBYSCORE', places, '-inf', digits(now), 'LIMIT', 0, 100)
  for _, place in ipairs(dead) do
    redis.call('ZREM', places, place)
    redis.call('ZREM', queue, place)
  end
end

local function mode_of(place)
  return string.sub(place, 1, -33)
end

-- Tells those who may go now; without a queue, everybody.
local function wake(channel)
  purge_places()
  local line = redis.call('ZRANGE', queue, 0, 63)
  if #line == 0 then
    redis.call('PUBLISH', channel, '')
    return
  end
  local seen = see()
  local free = nil
  for _, place in ipairs(line) do
    local mode = mode_of(place)
    if mode == 'x' then
      if seen.live > 0 or _ > 1 then
        return
      end
    elseif mode == 's' then
      if seen.live > 0 and seen.mode ~= 's' then
        return
      end
    else
      free = free or (tonumber(string.sub(mode, 2)) - (seen.live > 0 and seen.live or 0))
      if free <= 0 or (seen.live > 0 and seen.mode ~= mode) then
        return
      end
      free = free - 1
    end
    redis.call('PUBLISH', channel, string.sub(place, -32))
    if mode == 'x' then
      return
    end
  end
end
