-- Reads one task and what is remembered of an Idempotency-Key; a read renews the task's life.
-- KEYS: task, index of the user's tasks, idempotency record
-- ARGV: task's name in the index, life of the index in ms, "1" to renew
-- Returns {state, revisions, ttl_ms, left_ms, fingerprint, answer}; nil where there is none.  A finished task's end stands:
-- it is not renewed, and its ttl_ms is what is left.
local task = redis.call('HMGET', KEYS[1], 'state', 'revisions', 'ttl_ms', 'finished')
local once = redis.call('HMGET', KEYS[3], 'fingerprint', 'answer')
if not task[1] then
  return {false, false, false, false, once[1], once[2]}
end
if ARGV[3] == '1' and not task[4] then
  local now = redis.call('TIME')
  redis.call('PEXPIRE', KEYS[1], task[3])
  redis.call('ZADD', KEYS[2], now[1] * 1000 + math.floor(now[2] / 1000) + task[3], ARGV[1])
  redis.call('PEXPIRE', KEYS[2], ARGV[2])
end
local left = redis.call('PTTL', KEYS[1])
return {task[1], task[2], task[4] and left or task[3], left, once[1], once[2]}
