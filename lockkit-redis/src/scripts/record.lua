-- FROZEN. Writes the fence into a plain claim that was set before it was known.
-- KEYS: 1 the claim; ARGV: 1 token, 2 fence
-- Reply: 1, or 0 if there is nothing to write
local value = redis.pcall('GET', KEYS[1])
if type(value) ~= 'string' then
  return 0
end
local token, label = string.match(value, '^(%x+):t:%d+:(.*)$')
local left = redis.call('PTTL', KEYS[1])
if token ~= ARGV[1] or left <= 0 then
  return 0
end
redis.call('SET', KEYS[1], token .. ':f:' .. ARGV[2] .. ':' .. label, 'PX', left)
return 1
