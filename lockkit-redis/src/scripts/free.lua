-- FROZEN. Frees a plain exclusive claim that left nothing but its key.
-- KEYS: 1 the claim; ARGV: 1 token, 2 channel
-- Reply: 1, or 0 if there is no such claim
local value = redis.pcall('GET', KEYS[1])
if type(value) == 'string' and string.sub(value, 1, 32) == ARGV[1] then
  redis.call('DEL', KEYS[1])
  redis.call('PUBLISH', ARGV[2], '')
  return 1
end
return 0
