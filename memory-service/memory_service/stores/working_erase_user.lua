-- Deletes everything of one user's working memory; the two indexes know all of it.
-- KEYS: index of the user's tasks, index of the user's idempotency records
-- ARGV: start of the names of tasks, start of the names of idempotency records
-- Returns how many live tasks were deleted.
local deleted = 0
for _, task in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  deleted = deleted + redis.call('DEL', ARGV[1] .. task)
  redis.call('DEL', ARGV[1] .. task .. ':lock')
end
for _, name in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  redis.call('DEL', ARGV[2] .. string.match(name, '[^:]*$'))
end
redis.call('DEL', KEYS[1], KEYS[2])
return deleted
