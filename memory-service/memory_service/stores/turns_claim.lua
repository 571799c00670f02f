-- Takes messages of a session's buffer for one request, so that no other request writes them too.
-- KEYS: buffer
-- ARGV: 1 holder, 2 lease in ms, then the messages' numbers
-- Returns the numbers that are the holder's now; what is gone or another's is left out.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local taken = {}
for i = 3, #ARGV do
  if redis.call('HEXISTS', KEYS[1], 'm' .. ARGV[i]) == 1 then
    local claim = redis.call('HGET', KEYS[1], 'c' .. ARGV[i])
    if not claim or string.sub(claim, 1, 32) == ARGV[1] or tonumber(string.sub(claim, 33)) <= now then
      redis.call('HSET', KEYS[1], 'c' .. ARGV[i], ARGV[1] .. (now + ARGV[2]))
      taken[#taken + 1] = ARGV[i]
    end
  end
end
return taken
