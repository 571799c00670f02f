-- Writes one task if nobody else has since it was read, together with the record of an Idempotency-Key.
-- KEYS: task, lock, index of the user's tasks, idempotency record, index of the user's idempotency records
-- ARGV: 1 expected revision ('' = whatever there is), 2 new revision, 3 state, 4 ttl_ms ('' = as it is),
--       5 '1' to renew the life, 6 task's name in the index, 7 life of the index in ms, 8 holder of the lock ('' = none),
--       9 fingerprint ('' = no idempotency), 10 answer, 11 life of the record in ms, 12 record's name in its index,
--       13 '1' to refuse a finished task
-- Returns ok, stale, gone, locked, used or finished.  A finished task's end stands: only an explicit ttl_ms gives it another life, and
-- what replaces it whole is another task.
local REVISIONS_KEPT = 8 * 17  -- 8 names of 16 characters and a comma: enough to recognise a write whose reply was lost
local held = redis.call('HMGET', KEYS[1], 'revisions', 'ttl_ms', 'finished')
local revisions = held[1] or ''
if string.find(revisions, ARGV[2], 1, true) then
  return 'ok'
end
local holder = redis.call('GET', KEYS[2])
if holder and holder ~= ARGV[8] then
  return 'locked'
end
if ARGV[1] ~= '' then
  if not held[1] then
    return 'gone'
  end
  if string.sub(revisions, 1, 16) ~= ARGV[1] then
    return 'stale'
  end
end
if ARGV[9] ~= '' and redis.call('EXISTS', KEYS[4]) == 1 then
  return 'used'
end
if ARGV[13] == '1' and held[3] then
  return 'finished'
end
local ttl = ARGV[4]
local renew = ARGV[5]
if ttl == '' then
  ttl = held[2]
  if held[3] then
    renew = '0'
  end
elseif held[3] then
  redis.call('HDEL', KEYS[1], 'finished')
  if ARGV[1] == '' then
    redis.call('HDEL', KEYS[1], 'run', 'advised')
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'state', ARGV[3], 'revisions', string.sub(ARGV[2] .. ',' .. revisions, 1, REVISIONS_KEPT), 'ttl_ms', ttl)
if renew == '1' then
  redis.call('PEXPIRE', KEYS[1], ttl)
  redis.call('ZADD', KEYS[3], now + ttl, ARGV[6])
  redis.call('PEXPIRE', KEYS[3], ARGV[7])
end
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
if ARGV[9] ~= '' then
  redis.call('HSET', KEYS[4], 'fingerprint', ARGV[9], 'answer', ARGV[10])
  redis.call('PEXPIRE', KEYS[4], ARGV[11])
  redis.call('ZADD', KEYS[5], now + ARGV[11], ARGV[12])
  redis.call('PEXPIRE', KEYS[5], ARGV[11])
  redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', now)
end
if holder then
  redis.call('DEL', KEYS[2])
end
return 'ok'
