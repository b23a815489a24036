-- FROZEN. Who holds the key. Writes nothing.
-- Reply: nil if nobody; else the description
local seen = see()
if seen.live == 0 then
  return false
end
return describe(seen, true)
