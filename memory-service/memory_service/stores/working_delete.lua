-- Deletes one task and the stored answers that show it.  The fingerprints stay, so that a repeated request does nothing.
-- KEYS: task, index of the user's tasks, index of the user's idempotency records
-- ARGV: task's name in the index, start of the names of idempotency records, their first characters for this task
-- Returns how many tasks were deleted: 0 or 1.
local deleted = redis.call('DEL', KEYS[1])
redis.call('ZREM', KEYS[2], ARGV[1])
for _, name in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do
  if string.sub(name, 1, #ARGV[3]) == ARGV[3] then
    local record = ARGV[2] .. string.sub(name, #ARGV[3] + 1)
    if redis.call('EXISTS', record) == 1 then
      redis.call('HSET', record, 'answer', '')
    end
  end
end
return deleted
