-- Remembers one line of advice beside a task, the newest lines within a bound; the task's life stays as it is.
-- KEYS: task
-- ARGV: line, most bytes of all lines
if redis.call('EXISTS', KEYS[1]) == 0 then
  return 0
end
local lines = (redis.call('HGET', KEYS[1], 'advised') or '') .. ARGV[1] .. '\n'
while #lines > tonumber(ARGV[2]) do
  lines = string.sub(lines, string.find(lines, '\n', 1, true) + 1)
end
redis.call('HSET', KEYS[1], 'advised', lines)
return 1
