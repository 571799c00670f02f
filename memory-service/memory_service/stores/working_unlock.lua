-- Ends a lock if it is still held by this holder.
-- KEYS: lock
-- ARGV: holder
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
