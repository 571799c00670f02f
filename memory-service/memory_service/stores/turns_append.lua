-- Adds the messages of one request to a session's buffer, claimed for that request, and returns the whole buffer.
-- KEYS: buffer, index of the user's sessions
-- ARGV: 1 batch (32 characters; the same batch again adds nothing), 2 holder (32 characters), 3 lease in ms, 4 life in ms,
--       5 session's name in the index, 6 most messages, 7 most bytes, then the messages
-- Without messages it only reads.  Returns 'full', or a flat list of number, message, claim for each: '' nobody's, 'mine', 'other', 'lapsed'.
local BATCHES_KEPT = 64 * 33
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HGET', KEYS[1], 'batches') or ''
local repeated = string.find(known, ARGV[1], 1, true)
if #ARGV > 7 and not repeated then
  local added = 0
  for i = 8, #ARGV do
    added = added + #ARGV[i]
  end
  local held = redis.call('HMGET', KEYS[1], 'bytes', 'count')
  if (tonumber(held[1]) or 0) + added > tonumber(ARGV[7]) or (tonumber(held[2]) or 0) + #ARGV - 7 > tonumber(ARGV[6]) then
    return 'full'
  end
  -- Not from 1: who still holds numbers of a buffer that was erased must not take messages of the next one for his.  Microseconds,
  -- without the digits beyond the 14 that Lua writes out.
  redis.call('HSETNX', KEYS[1], 'last', string.format('%.0f', (time[1] * 1000000 + time[2]) % 10000000000000))
  for i = 8, #ARGV do
    local number = redis.call('HINCRBY', KEYS[1], 'last', 1)
    redis.call('HSET', KEYS[1], 'm' .. number, ARGV[1] .. ARGV[i], 'c' .. number, ARGV[2] .. (now + ARGV[3]))
  end
  redis.call('HINCRBY', KEYS[1], 'bytes', added)
  redis.call('HINCRBY', KEYS[1], 'count', #ARGV - 7)
  redis.call('HSET', KEYS[1], 'batches', string.sub(ARGV[1] .. ',' .. known, 1, BATCHES_KEPT))
end
if #ARGV > 7 then
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
  redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[5])
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
  redis.call('PEXPIRE', KEYS[2], ARGV[4])
end
local found = {}
local fields = redis.call('HGETALL', KEYS[1])
local claims = {}
for i = 1, #fields, 2 do
  if string.sub(fields[i], 1, 1) == 'c' then
    claims[string.sub(fields[i], 2)] = fields[i + 1]
  end
end
for i = 1, #fields, 2 do
  local number = string.match(fields[i], '^m(%d+)$')
  if number then
    local claim = claims[number]
    local whose = ''
    if string.sub(fields[i + 1], 1, 32) == ARGV[1] and (not claim or string.sub(claim, 1, 32) ~= ARGV[2]) then
      -- The request that added it died; this one is its repetition.
      redis.call('HSET', KEYS[1], 'c' .. number, ARGV[2] .. (now + ARGV[3]))
      whose = 'mine'
    elseif claim then
      whose = string.sub(claim, 1, 32) == ARGV[2] and 'mine' or tonumber(string.sub(claim, 33)) > now and 'other' or 'lapsed'
    end
    found[#found + 1] = number
    found[#found + 1] = string.sub(fields[i + 1], 33)
    found[#found + 1] = whose
  end
end
return found
