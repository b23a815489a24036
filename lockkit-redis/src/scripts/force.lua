-- FROZEN. Takes the key from whoever holds it, or from one claim.
-- ARGV: 1 channel, 2 any, token or fence, 3 the token or fence, 4 Redisson's channel or ''
-- Reply: how many claims it hit; -3 if the holder's fence is not known here yet
local channel, how, wanted, redisson = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local seen = see()
if seen.kind == 'other' then
  return 0
end
purge(seen)
local function hits(token, fence)
  return how == 'any' or (how == 'token' and token == wanted)
    or (how == 'fence' and fence and digits(fence) == wanted)
end
local hit = 0
if seen.kind == 'foreign' then
  if how == 'any' then
    redis.call('DEL', base)
    hit = 1
  end
elseif seen.kind == 'string' then
  if how == 'fence' and seen.form == 't' then
    return -3
  end
  if hits(seen.token, seen.form == 'f' and seen.number) then
    redis.call('DEL', base)
    hit = 1
  end
elseif seen.kind == 'hash' then
  for token, claim in pairs(seen.claims) do
    if hits(token, claim.fence) then
      redis.call('HDEL', base, 't:' .. token)
      redis.call('HINCRBY', base, 'o:' .. seen.owner, -1)
      seen.claims[token] = nil
      hit = hit + 1
    end
  end
  if hit == seen.live then
    redis.call('DEL', base)
  elseif hit > 0 then
    keep_hash(seen.claims)
  end
elseif seen.kind == 'zset' and seen.live > 0 then
  local tokens = redis.call('ZRANGE', base, 0, -1)
  for _, token in ipairs(tokens) do
    if hits(token, claim_of(token).fence) then
      redis.call('ZREM', base, token)
      redis.call('HDEL', info, 'c' .. token)
      hit = hit + 1
    end
  end
  keep_zset()
end
if hit > 0 then
  wake(channel)
  if redisson ~= '' and redis.call('EXISTS', base) == 0 then
    redis.call('PUBLISH', redisson, '0')
  end
end
return hit
