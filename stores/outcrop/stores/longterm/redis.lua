-- The scripts of the long-term memory on Redis. Each is one atomic step.

-- Claims the prefix's dimensions, or tells whose they are: {version, dimensions}.
-- KEYS: schema; ARGV: version, dimensions.
-- name: schema
if redis.call('EXISTS', KEYS[1]) == 0 then
    redis.call('HSET', KEYS[1], 'version', ARGV[1], 'dimensions', ARGV[2])
end
return redis.call('HMGET', KEYS[1], 'version', 'dimensions')

-- Writes a record; the time of its creation stays.
-- KEYS: record, ids, updated; ARGV: id, score, now, then fields and values.
-- name: upsert
local created = redis.call('HGET', KEYS[1], 'created_at') or ARGV[3]
redis.call('HDEL', KEYS[1], 'content', 'text', '_meta')
redis.call('HSET', KEYS[1], 'created_at', created, 'updated_at', ARGV[3], unpack(ARGV, 4))
redis.call('ZADD', KEYS[2], 0, ARGV[1])
redis.call('ZADD', KEYS[3], ARGV[2], KEYS[1])
return 1

-- KEYS: record, ids, updated; ARGV: id.
-- name: delete
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], KEYS[1])
return redis.call('DEL', KEYS[1])

-- Deletes a record that is still old.
-- KEYS: record, ids, updated; ARGV: id, score that it must be under.
-- name: purge
local score = redis.call('ZSCORE', KEYS[3], KEYS[1])
if not score or tonumber(score) >= tonumber(ARGV[2]) then
    return 0
end
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], KEYS[1])
redis.call('DEL', KEYS[1])
return 1
