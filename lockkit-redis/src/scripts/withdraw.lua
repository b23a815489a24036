-- FROZEN. Takes a claim, its place and its intent away; right in every state.
-- ARGV: 1 channel, 2 token, 3 fair (0, 1), 4 Redisson's channel or '', 5 mode
-- Reply: 1, or 0 if there was no claim
local channel, token, redisson = ARGV[1], ARGV[2], ARGV[4]
local seen = see()
local freed, moved, told = 0, false, false
if seen.kind == 'string' and seen.token == token then
  redis.call('DEL', base)
  freed = 1
elseif seen.kind == 'hash' then
  purge(seen)
  if seen.claims[token] then
    freed = 1
    if seen.live == 1 then
      redis.call('DEL', base)
      told = redisson ~= ''
    else
      redis.call('HDEL', base, 't:' .. token)
      redis.call('HINCRBY', base, 'o:' .. seen.owner, -1)
      seen.claims[token] = nil
      keep_hash(seen.claims)
    end
  end
elseif seen.kind == 'zset' then
  purge(seen)
  local claim = redis.call('ZREM', base, token)
  redis.call('HDEL', info, 'c' .. token)
  keep_zset()
  freed = claim
elseif seen.kind == 'other' then
  -- Somebody took away what tells that these are claims.
  local claim = redis.pcall('ZREM', base, token)
  freed = type(claim) == 'number' and claim or 0
end
if redis.call('GET', writer) == token then
  redis.call('DEL', writer)
  moved = true
end
-- Whatever mode it waited in.
if redis.call('EXISTS', queue) == 1 then
  for _, mode in ipairs({ 'x', 's', ARGV[5] }) do
    if redis.call('ZREM', queue, mode .. token) == 1 then
      redis.call('ZREM', places, mode .. token)
      moved = true
    end
  end
end
if freed == 1 or moved then
  wake(channel)
end
if told then
  redis.call('PUBLISH', redisson, '0')
end
return freed
