-- Deletes every session's buffer of one user; the index knows all of them.
-- KEYS: index of the user's sessions
-- ARGV: start of the names of buffers
-- Returns how many buffers were deleted.
local deleted = 0
for _, session in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  deleted = deleted + redis.call('DEL', ARGV[1] .. session)
end
redis.call('DEL', KEYS[1])
return deleted
