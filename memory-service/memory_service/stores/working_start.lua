-- Begins a task unless one lives under its id.  One that is finished gives way to the new one.
-- KEYS: task, index of the user's tasks
-- ARGV: 1 run, 2 revision, 3 state, 4 ttl_ms, 5 task's name in the index, 6 life of the index in ms,
--       7 run that is known to be finished ('' = none): its end may not have been noted here
-- Returns ok, ours (this very start was here before) or taken.
local held = redis.call('HMGET', KEYS[1], 'revisions', 'run', 'finished')
if held[1] then
  if held[2] == ARGV[1] then
    return 'ours'
  end
  local over = held[3] or (held[2] and held[2] == ARGV[7])
  if not over then
    return 'taken'
  end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('DEL', KEYS[1])
redis.call('HSET', KEYS[1], 'state', ARGV[3], 'revisions', ARGV[2], 'ttl_ms', ARGV[4], 'run', ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[4])
redis.call('ZADD', KEYS[2], now + ARGV[4], ARGV[5])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
return 'ok'
