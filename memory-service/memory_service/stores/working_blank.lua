-- Forgets the answer of one idempotency record.  Its fingerprint stays, so that a repeated request does nothing.
-- KEYS: idempotency record
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HSET', KEYS[1], 'answer', '')
end
return 1
