-- Ends a request's claims: drops the messages that were written, replaces those of which a part was, frees the rest.
-- KEYS: buffer
-- ARGV: 1 holder, 2 batch to forget ('' = none), 3 how many to drop, those numbers, then pairs of number and new text ('' = as it is)
-- Doing it again changes nothing.
local dropped = tonumber(ARGV[3])
local bytes, count = 0, 0
for i = 4, 3 + dropped do
  local text = redis.call('HGET', KEYS[1], 'm' .. ARGV[i])
  if text then
    bytes = bytes - (#text - 32)
    count = count - 1
  end
  redis.call('HDEL', KEYS[1], 'm' .. ARGV[i], 'c' .. ARGV[i])
end
for i = 4 + dropped, #ARGV - 1, 2 do
  local text = redis.call('HGET', KEYS[1], 'm' .. ARGV[i])
  if text and ARGV[i + 1] ~= '' then
    redis.call('HSET', KEYS[1], 'm' .. ARGV[i], string.sub(text, 1, 32) .. ARGV[i + 1])
    bytes = bytes + #ARGV[i + 1] - (#text - 32)
  end
  local claim = redis.call('HGET', KEYS[1], 'c' .. ARGV[i])
  if claim and string.sub(claim, 1, 32) == ARGV[1] then
    redis.call('HDEL', KEYS[1], 'c' .. ARGV[i])
  end
end
if ARGV[2] ~= '' then
  local known = redis.call('HGET', KEYS[1], 'batches')
  if known then
    redis.call('HSET', KEYS[1], 'batches', (string.gsub(known, ARGV[2] .. ',?', '')))
  end
end
if redis.call('EXISTS', KEYS[1]) == 1 then  -- never bring a buffer back to life that was erased
  redis.call('HINCRBY', KEYS[1], 'bytes', bytes)
  redis.call('HINCRBY', KEYS[1], 'count', count)
end
return count
