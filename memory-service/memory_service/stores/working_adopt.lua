-- Gives a run to a task that was made by hand; one that it has already stays.
-- KEYS: task
-- ARGV: run
-- Returns the run that it has now, '' when there is no task.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return ''
end
redis.call('HSETNX', KEYS[1], 'run', ARGV[1])
return redis.call('HGET', KEYS[1], 'run')
