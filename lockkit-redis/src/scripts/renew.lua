-- FROZEN. Extends a claim that stands; never makes one, never takes time away.
-- ARGV: 1 token, 2 TTL (ms), 3 fence or ''
-- Reply: 1, or 0 if there is no such claim
-- Out of memory, a server lets a script have more of it only behind a write that needs none. So
-- there is one, of no other effect, before each of those that need some.
local token, ttl, fence = ARGV[1], tonumber(ARGV[2]), ARGV[3]
local ends = now + ttl
local seen = see()
if seen.kind == 'string' and seen.token == token then
  local left = redis.call('PTTL', base)
  if seen.form == 't' then
    -- What the client could not know when it set it.
    local form, number = 'f', fence
    if fence == '' then
      form, number = 's', digits(now + left - seen.number)
    end
    local value = token .. ':' .. form .. ':' .. number .. ':' .. seen.label
    redis.call('PEXPIRE', base, math.max(ttl, left))
    redis.call('SET', base, value, 'PX', math.max(ttl, left))
  elseif left < ttl then
    redis.call('PEXPIRE', base, ttl)
  end
  return 1
elseif seen.kind == 'hash' and seen.claims[token] then
  local claim = seen.claims[token]
  claim.expires = math.max(ends, claim.expires)
  redis.call('HDEL', base, '')
  redis.call('HSET', base, 't:' .. token,
    digits(claim.expires) .. ':' .. digits(claim.fence) .. ':' .. digits(claim.since) .. ':' .. claim.label)
  keep_hash(seen.claims)
  return 1
elseif seen.kind == 'zset' then
  local expires = tonumber(redis.call('ZSCORE', base, token) or 0)
  if expires > now then
    redis.call('ZREM', base, '')
    redis.call('ZADD', base, digits(math.max(ends, expires)), token)
    keep_zset()
    return 1
  end
end
return 0
