-- Fixes the end of a finished task: from now on no read and no write renews its life, only an explicit one does.
-- KEYS: task, index of the user's tasks
-- ARGV: run, most ms that it shall live on, task's name in the index
-- Returns 1 when the task of this run is there.
local held = redis.call('HMGET', KEYS[1], 'run', 'finished')
if held[1] ~= ARGV[1] then
  return 0
end
if held[2] then
  return 1
end
redis.call('HSET', KEYS[1], 'finished', '1')
if redis.call('PTTL', KEYS[1]) > tonumber(ARGV[2]) then
  local time = redis.call('TIME')
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  redis.call('ZADD', KEYS[2], time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[2], ARGV[3])
end
return 1
