-- FROZEN. Has a claim end by itself after exactly so long.
-- ARGV: 1 token, 2 rest (ms)
-- Reply: 1, or 0 if there is no such claim
-- The first writes are for servers without memory, as those of a renewal.
local token, rest = ARGV[1], tonumber(ARGV[2])
local ends = now + rest
local seen = see()
if seen.kind == 'string' and seen.token == token then
  redis.call('PEXPIRE', base, rest)
  return 1
elseif seen.kind == 'hash' and seen.claims[token] then
  local claim = seen.claims[token]
  redis.call('HDEL', base, '')
  redis.call('HSET', base, 't:' .. token,
    digits(ends) .. ':' .. digits(claim.fence) .. ':' .. digits(claim.since) .. ':' .. claim.label)
  claim.expires = ends
  keep_hash(seen.claims)
  return 1
elseif seen.kind == 'zset' then
  local expires = tonumber(redis.call('ZSCORE', base, token) or 0)
  if expires > now then
    redis.call('ZREM', base, '')
    redis.call('ZADD', base, digits(ends), token)
    keep_zset()
    return 1
  end
end
return 0
