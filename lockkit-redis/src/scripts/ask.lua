-- FROZEN. Asks for a claim; idempotent per token.
-- ARGV: 1 channel, 2 token, 3 mode (x, s, p<limit>), 4 TTL (ms), 5 stage (try, wait), 6 fair (0, 1),
--       7 layout (string, hash), 8 owner or '', 9 label, 10 Redisson's channel or ''
-- Reply: {1, fence}; {0, free in (ms) or -1, description...}; {-1, mode of another family};
--        {-2, type of a key that is no lock}
local channel, token, mode, ttl = ARGV[1], ARGV[2], ARGV[3], tonumber(ARGV[4])
local stays, fair, layout, owner, label = ARGV[5] == 'wait', ARGV[6] == '1', ARGV[7], ARGV[8], ARGV[9]
local place = mode .. token
local ends = now + ttl

local function leave_line()
  redis.call('ZREM', queue, place)
  redis.call('ZREM', places, place)
end

local function no_intent()
  if redis.call('GET', writer) == token then
    redis.call('DEL', writer)
  end
end

local function granted(fence)
  if fair then
    leave_line()
    -- Readers and permits behind it may go too.
    if mode ~= 'x' and redis.call('EXISTS', queue) == 1 then
      wake(channel)
    end
  elseif mode == 'x' then
    no_intent()
  end
  return { 1, fence }
end

local seen = see()
if seen.kind == 'other' then
  return { -2, seen.sort }
end

-- An earlier request has had its effect: the whole TTL anew, and never less than it had.
if seen.kind == 'string' and seen.token == token then
  local fence = seen.form == 'f' and seen.number or now_us
  local value = token .. ':f:' .. digits(fence) .. ':' .. seen.label
  redis.call('SET', base, value, 'PX', math.max(ttl, redis.call('PTTL', base)))
  return granted(fence)
elseif seen.kind == 'hash' and seen.claims[token] then
  local claim = seen.claims[token]
  purge(seen)
  claim.expires = math.max(ends, claim.expires)
  redis.call('HSET', base, 't:' .. token,
    digits(claim.expires) .. ':' .. digits(claim.fence) .. ':' .. digits(claim.since) .. ':' .. claim.label)
  keep_hash(seen.claims)
  return granted(claim.fence)
elseif seen.kind == 'zset' then
  local expires = tonumber(redis.call('ZSCORE', base, token) or 0)
  if expires > now then
    redis.call('ZADD', base, digits(math.max(ends, expires)), token)
    keep_zset()
    return granted(claim_of(token).fence)
  end
end

-- All live claims and all who wait are of one family.
local function other_family(found)
  if found == mode then
    return false
  end
  return string.sub(found, 1, 1) == 'p' or string.sub(mode, 1, 1) == 'p'
end
if seen.live > 0 and other_family(seen.mode) then
  return { -1, seen.mode }
end

-- The owner is in already, perhaps by another process.
if seen.kind == 'hash' and seen.live > 0 and owner ~= '' and seen.owner == owner
  and (mode == 'x' or mode == 's') then
  purge(seen)
  redis.call('HINCRBY', base, 'o:' .. owner, 1)
  redis.call('HSET', base, 't:' .. token,
    digits(ends) .. ':' .. digits(seen.fence) .. ':' .. digits(now) .. ':' .. label)
  seen.claims[token] = { expires = ends }
  keep_hash(seen.claims)
  return granted(seen.fence)
end

-- How many stand before it in the queue, and whether one of them is in its way.
local function blocked_by_line()
  purge_places()
  local line = redis.call('ZRANGE', queue, 0, 0)
  if line[1] and other_family(mode_of(line[1])) then
    return false, mode_of(line[1])
  end
  local ahead = redis.call('ZRANK', queue, place) or redis.call('ZCARD', queue)
  if ahead == 0 then
    return false
  elseif mode == 'x' then
    return true
  elseif mode == 's' then
    -- Readers ahead are let in from the front: whoever has many before it is told in time.
    if ahead > 64 then
      return true
    end
    for _, other in ipairs(redis.call('ZRANGE', queue, 0, ahead - 1)) do
      if mode_of(other) == 'x' then
        return true
      end
    end
    return false
  end
  return tonumber(string.sub(mode, 2)) - seen.live <= ahead
end

local function blocked_by_holder()
  if seen.live == 0 then
    return false
  elseif mode == 's' then
    return seen.mode ~= 's'
  elseif mode == 'x' then
    return true
  end
  return seen.live >= tonumber(string.sub(mode, 2))
end

local blocked, intent = blocked_by_holder(), false
if fair then
  local in_line, other = blocked_by_line()
  if other then
    return { -1, other }
  end
  blocked = blocked or in_line
elseif mode == 's' and not blocked then
  local waits = redis.call('GET', writer)
  intent = waits and waits ~= token
  blocked = intent
end

if blocked then
  if fair and stays then
    local ticket = redis.call('ZSCORE', queue, place)
    if not ticket then
      local last = redis.call('ZRANGE', queue, -1, -1, 'WITHSCORES')
      ticket = math.max(now_us, tonumber(last[2] or 0) + 1)
      redis.call('ZADD', queue, digits(ticket), place)
    end
    -- For as long as it would hold the key if it vanished; waiters ask every half second.
    local stands = math.min(math.max(ttl, 600), 2000)
    redis.call('ZADD', places, digits(now + stands), place)
    redis.call('PEXPIRE', queue, 2000)
    redis.call('PEXPIRE', places, 2000)
  elseif mode == 'x' and stays and seen.mode == 's' then
    -- New readers respect it, so that they cannot keep the writer out for ever.
    redis.call('SET', writer, token, 'PX', 2000)
  end
  local free_in = -1
  if intent then
    free_in = redis.call('PTTL', writer)
  elseif seen.live == 0 then
    local first = redis.call('ZRANGE', queue, 0, 0)[1]
    local stands = first and redis.call('ZSCORE', places, first)
    free_in = stands and math.max(tonumber(stands) - now, 0) or -1
  elseif seen.kind == 'zset' and mode ~= 'x' then
    local first = redis.call('ZRANGEBYSCORE', base, '(' .. digits(now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1)
    free_in = tonumber(first[2]) - now
  else
    free_in = redis.call('PTTL', base)
  end
  if seen.live == 0 then
    return { 0, free_in }
  end
  return { 0, free_in, unpack(describe(seen)) }
end

-- Granted.
local last = tonumber(redis.call('HGET', info, 'last') or 0)
local fence = math.max(now_us, last + 1)
purge(seen)
if mode == 'x' then
  if seen.kind == 'zset' then
    redis.call('DEL', info)
  end
  if owner == '' and layout == 'string' then
    redis.call('SET', base, token .. ':f:' .. digits(fence) .. ':' .. label, 'PX', ttl)
  else
    redis.call('HSET', base, 'o:' .. (owner ~= '' and owner or token), 1)
    redis.call('HSET', base, 'f', digits(fence))
    redis.call('HSET', base, 't:' .. token,
      digits(ends) .. ':' .. digits(fence) .. ':' .. digits(now) .. ':' .. label)
    redis.call('PEXPIRE', base, ttl)
  end
else
  if seen.live == 0 then
    -- What may be left if somebody deleted the claims by hand.
    redis.call('DEL', info)
  end
  redis.call('ZADD', base, digits(ends), token)
  redis.call('HSET', info, 'mode', mode)
  redis.call('HSET', info, 'last', digits(fence))
  redis.call('HSET', info, 'c' .. token, digits(fence) .. ':' .. digits(now) .. ':' .. label)
  keep_zset()
end
return granted(fence)
