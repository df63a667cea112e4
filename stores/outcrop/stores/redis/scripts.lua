-- The scripts of the Redis store; each runs as one atomic step. Keys and effects are the ones that
-- every engine of the format keeps, so scripts of other engines may work on the same keys.
-- All checks come before the first write. Parts that begin several scripts define functions (see scripts.py).
--
-- Three keys are ours alone, and what they hold counts only while it agrees with the others, so that another
-- engine's save leaves nothing wrong behind:
-- heads: of a thread whose row is large, the row without its states, after the log's length and the row's
--   score, while these are still the thread's. They spare listings the states.
-- due: the waiting threads by wake time (fourteen digits; 0 where the row doesn't tell, which is always looked at).
-- waits: for each of these the log's length and the row's score for which that was found; in a field that no
--   thread can have as its ID, how far back the waiting threads must be compared with that (see due.py).
--
-- Two more hold what no other engine has:
-- notes, a hash a thread: for each note its value at `SEQUENCE/KIND/PATH`, and at `SEQUENCE` a JSON array of the
--   row's created_at, which tells it from one at the same place in a later log, and the `KIND/PATH` of its notes.
-- noted: the threads that have such a hash.

-- name: notes
-- Puts ARGV[first], its value, and so on beside a row, as notes named KIND/PATH.
local function put_notes(key, noted, thread, sequence, created_at, first, last)
  local place = string.format('%d', sequence)
  local index, known = redis.call('HGET', key, place), {}
  local names = index and cjson.decode(index) or {}
  if names[1] ~= created_at then
    names = {created_at}
  end
  for number = 2, #names do
    known[names[number]] = true
  end
  for at = first, last, 2 do
    redis.call('HSET', key, place .. '/' .. ARGV[at], ARGV[at + 1])
    if not known[ARGV[at]] then
      known[ARGV[at]] = true
      names[#names + 1] = ARGV[at]
    end
  end
  redis.call('HSET', key, place, cjson.encode(names))
  redis.call('SADD', noted, thread)
end

-- name: save
-- KEYS  1 list, 2 all threads, 3 waking, 4-10 the states in order, 11 blobs, 12 token counter, 13 lease, 14 heads,
--       15 due, 16 waits, 17 notes, 18 noted
-- ARGV  1 element, 2 thread, 3 score, 4 state's place, 5 wake time ('' not waking), 6 expiry in ms (0 none),
--       7 expected sequence ('' any), 8 lease token ('' none), 9 release (1 or 0),
--       10 base sequence ('' none), 11 SHA-1 of the base's element, 12 head ('' none),
--       13 how many of these are about notes: 14 the row's created_at, 15... the notes' names and values;
--       after them blobs' names and contents
-- Answers the log's new length, or 0 when the log moved, -1 when the lease is lost, -2 when the base moved.
if ARGV[8] ~= '' and redis.call('GET', KEYS[12]) ~= ARGV[8] then
  return -1
end
local length = redis.call('LLEN', KEYS[1])
if ARGV[7] ~= '' and length - 1 ~= tonumber(ARGV[7]) then
  return 0
end
if ARGV[10] ~= '' and (length - 1 ~= tonumber(ARGV[10])
    or redis.sha1hex(redis.call('LINDEX', KEYS[1], -1) or '') ~= ARGV[11]) then
  return -2
end
local about_notes = tonumber(ARGV[13])
for at = 14 + about_notes, #ARGV, 2 do
  redis.call('HSETNX', KEYS[11], ARGV[at], ARGV[at + 1])
end
length = redis.call('RPUSH', KEYS[1], ARGV[1])
if length == 1 then
  redis.call('DEL', KEYS[17]) -- of a log that another engine purged
end
if about_notes > 0 then
  put_notes(KEYS[17], KEYS[18], ARGV[2], length - 1, ARGV[14], 15, 13 + about_notes)
end
redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2])
if ARGV[5] ~= '' then
  redis.call('ZADD', KEYS[3], ARGV[3], ARGV[2])
  redis.call('ZADD', KEYS[15], ARGV[5], ARGV[2])
  redis.call('HSET', KEYS[16], ARGV[2], length .. ':' .. ARGV[3])
elseif redis.call('ZREM', KEYS[3], ARGV[2]) == 1 then
  redis.call('ZREM', KEYS[15], ARGV[2])
  redis.call('HDEL', KEYS[16], ARGV[2])
end
local place = tonumber(ARGV[4])
for at = 1, 7 do
  if at == place then
    redis.call('ZADD', KEYS[3 + at], ARGV[3], ARGV[2])
  else
    redis.call('ZREM', KEYS[3 + at], ARGV[2])
  end
end
local counter = ARGV[8] ~= '' and KEYS[12] or nil
for _, key in ipairs({KEYS[1], KEYS[11], KEYS[17], counter}) do
  if place ~= 5 and place ~= 6 then
    redis.call('PERSIST', key)
  elseif ARGV[6] ~= '0' then
    redis.call('PEXPIRE', key, ARGV[6])
  end
end
if ARGV[12] ~= '' then
  redis.call('HSET', KEYS[14], ARGV[2], length .. ':' .. ARGV[3] .. ':' .. ARGV[12])
else
  redis.call('HDEL', KEYS[14], ARGV[2])
end
if ARGV[9] == '1' then
  redis.call('DEL', KEYS[13])
end
return length

-- name: add_notes
-- KEYS  1 list, 2 all threads, 3 token counter, 4 heads, 5 notes, 6 noted
-- ARGV  1 thread, 2 what a list's key begins with, 3 lease token ('' none), 4 sequence and 5 created_at of the row,
--       6... the notes' names and values
-- Answers 1, or 0 when that isn't the latest row, -1 when the lease is lost.
if ARGV[3] ~= '' and redis.call('GET', KEYS[3]) ~= ARGV[3] then
  return -1
end
local length, text = row_of(KEYS[4], ARGV[2], ARGV[1], redis.call('ZSCORE', KEYS[2], ARGV[1]) or '')
if length - 1 ~= tonumber(ARGV[4]) then
  return 0
end
local whole, row = pcall(cjson.decode, text)
if not whole or row.created_at ~= ARGV[5] then
  return 0
end
put_notes(KEYS[5], KEYS[6], ARGV[1], length - 1, ARGV[5], 6, #ARGV)
local expires_at = redis.call('PEXPIRETIME', KEYS[1])
if expires_at > 0 then
  redis.call('PEXPIREAT', KEYS[5], expires_at)
end
return 1

-- name: get_notes
-- KEYS  1 notes    ARGV  1 sequence and 2 created_at of a row, 3... of others
-- Answers {sequence, name, value} for each note.
local found = {}
for at = 1, #ARGV, 2 do
  local index = redis.call('HGET', KEYS[1], ARGV[at])
  local names = index and cjson.decode(index) or {}
  if names[1] == ARGV[at + 1] then
    for number = 2, #names do
      found[#found + 1] = {ARGV[at], names[number], redis.call('HGET', KEYS[1], ARGV[at] .. '/' .. names[number])}
    end
  end
end
return found

-- name: acquire
-- KEYS  1 lease, 2 token counter, 3 list    ARGV  1 owner, 2 ttl in ms, 3 expected sequence ('' any)
-- Answers {1, token, owner, expiry}, or {0, ...} of the lease that holds the thread, or {2} when the log moved.
if redis.call('EXISTS', KEYS[1]) == 1 then
  local held = redis.call('HMGET', KEYS[1], 'token', 'owner')
  return {0, held[1], held[2], redis.call('PEXPIRETIME', KEYS[1])}
end
if ARGV[3] ~= '' and redis.call('LLEN', KEYS[3]) - 1 ~= tonumber(ARGV[3]) then
  return {2}
end
local token = redis.call('INCR', KEYS[2])
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token)
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {1, tostring(token), ARGV[1], redis.call('PEXPIRETIME', KEYS[1])}

-- name: renew
-- KEYS  1 lease, 2 token counter    ARGV  1 owner, 2 ttl in ms, 3 token
-- Answers the new expiry, or 0 when the token isn't the latest.
if redis.call('GET', KEYS[2]) ~= ARGV[3] then
  return 0
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', ARGV[3])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return redis.call('PEXPIRETIME', KEYS[1])

-- name: release
-- KEYS  1 lease, 2 token counter    ARGV  1 token
if redis.call('GET', KEYS[2]) ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
return 1

-- name: holder
-- KEYS  1 lease
-- Answers {token, owner, expiry}, or nothing when the thread is free.
if redis.call('EXISTS', KEYS[1]) == 0 then
  return false
end
local held = redis.call('HMGET', KEYS[1], 'token', 'owner')
return {held[1], held[2], redis.call('PEXPIRETIME', KEYS[1])}

-- name: latest
-- KEYS  1 list
-- Answers {length, last element}, or nothing for an unknown thread.
local element = redis.call('LINDEX', KEYS[1], -1)
return element and {redis.call('LLEN', KEYS[1]), element}

-- name: position
-- The score of an element, and the place of its state; nothing when it can't be read.
local function text_of(value)
  return type(value) == 'string' and value or nil
end
local function position(element)
  local whole, row = pcall(cjson.decode, element)
  if not whole or type(row) ~= 'table' then
    return nil
  end
  local places = {interrupted = 1, failed = 2, cancelled = 3, completed = 5, ended = 6, running = 7}
  local resumed_at = text_of(row.resumed_at)
  local score = (resumed_at or text_of(row.created_at) or ''):gsub('%D', '')
  local place = resumed_at and 4 or places[row.status]
  if score == '' then
    place = nil
  end
  return place, score, row
end

-- name: wake
-- The wake time of a row: digits, 0 where it isn't of the usual form, nothing where there is none.
local function wake_of(row)
  while type(row.nested) == 'table' do
    row = row.nested
  end
  local wake_at = type(row.wait) == 'table' and row.wait.wake_at
  if type(wake_at) ~= 'string' then
    return nil
  end
  return wake_at:find('^%d%d%d%d%-%d%d%-%d%dT%d%d:%d%d:%d%dZ$') and wake_at:gsub('%D', '') or '0'
end

-- name: order
-- Newest first, then by thread downwards: how listings go through a set.
local function below(one, other) -- by bytes: Lua's own comparison follows the server's locale
  for at = 1, math.min(#one, #other) do
    local left, right = one:byte(at), other:byte(at)
    if left ~= right then
      return left < right
    end
  end
  return #one < #other
end
local function first_below(set, score, thread)
  local low = redis.call('ZCOUNT', set, '(' .. score, '+inf')
  local high = low + redis.call('ZCOUNT', set, score, score)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if below(redis.call('ZREVRANGE', set, middle, middle)[1], thread) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
local function newest_first(one, other)
  local left, right = tonumber(one[2]), tonumber(other[2])
  if left ~= right then
    return left > right
  end
  return below(other[1], one[1])
end

-- name: rows
-- A thread's head, if it is that of its latest row, else its last element, '' when the list is missing.
local function row_of(heads, lists, thread, score)
  local list = lists .. thread
  local length = redis.call('LLEN', list)
  local mark = length .. ':' .. score
  local head = redis.call('HGET', heads, thread) or ''
  if head:sub(1, #mark + 1) == mark .. ':' then
    return length, head:sub(#mark + 2)
  end
  return length, redis.call('LINDEX', list, -1) or ''
end
local function with_rows(found, count, heads, lists)
  for at = #found, 1, -1 do
    if at > count then
      found[at] = nil
    else
      found[at][3], found[at][4] = row_of(heads, lists, found[at][1], found[at][2])
    end
  end
  return found
end

-- name: page
-- KEYS  1 heads, 2... sets of threads
-- ARGV  1 score, 2 thread to go on below ('' both: from the newest), 3 count, 4 score to stay above ('' none),
--       5 what a list's key begins with
-- Answers up to count of {thread, score, length, head or last element}, newest first, then by thread downwards;
-- the element of a missing list is ''.
local found, count = {}, tonumber(ARGV[3])
for number = 2, #KEYS do
  local set, start = KEYS[number], 0
  if ARGV[1] ~= '' then
    start = first_below(set, ARGV[1], ARGV[2])
  end
  local members = redis.call('ZREVRANGE', set, start, start + count - 1, 'WITHSCORES')
  for at = 1, #members, 2 do
    if ARGV[4] ~= '' and tonumber(members[at + 1]) <= tonumber(ARGV[4]) then
      break
    end
    found[#found + 1] = {members[at], members[at + 1]}
  end
end
if #KEYS > 2 then
  table.sort(found, newest_first)
end
return with_rows(found, count, KEYS[1], ARGV[5])

-- name: index
-- KEYS  1 list, 2 all threads, 3 waking, 4-10 the states in order, 11 heads, 12 due, 13 waits
-- ARGV  1 thread
-- Answers 1 when the thread is indexed by its last element, 0 when it is out of the index for want of one,
-- -1 when it is out because the element can't be read.
local element = redis.call('LINDEX', KEYS[1], -1)
local place, score, row
if element then
  place, score, row = position(element)
end
if not place then
  for at = 2, 10 do
    redis.call('ZREM', KEYS[at], ARGV[1])
  end
  redis.call('HDEL', KEYS[11], ARGV[1])
  redis.call('ZREM', KEYS[12], ARGV[1])
  redis.call('HDEL', KEYS[13], ARGV[1])
  return element and -1 or 0
end
local wakes = place == 1 and wake_of(row)
redis.call('ZADD', KEYS[2], score, ARGV[1])
if wakes then
  redis.call('ZADD', KEYS[3], score, ARGV[1])
  redis.call('ZADD', KEYS[12], wakes, ARGV[1])
  redis.call('HSET', KEYS[13], ARGV[1], redis.call('LLEN', KEYS[1]) .. ':' .. score)
else
  redis.call('ZREM', KEYS[3], ARGV[1])
  redis.call('ZREM', KEYS[12], ARGV[1])
  redis.call('HDEL', KEYS[13], ARGV[1])
end
for at = 1, 7 do
  if at == place then
    redis.call('ZADD', KEYS[3 + at], score, ARGV[1])
  else
    redis.call('ZREM', KEYS[3 + at], ARGV[1])
  end
end
return 1

-- name: purgeable
-- KEYS  1... the states' sets    ARGV  1 score to stay below, 2 count
-- Answers up to count a set of {thread, score}, oldest first.
local found = {}
for _, set in ipairs(KEYS) do
  local members = redis.call('ZRANGEBYSCORE', set, '-inf', '(' .. ARGV[1], 'WITHSCORES', 'LIMIT', 0, ARGV[2])
  for at = 1, #members, 2 do
    found[#found + 1] = {members[at], members[at + 1]}
  end
end
return found

-- name: purge
-- KEYS  1 list, 2 all threads, 3 waking, 4-10 the states in order, 11 blobs, 12 token counter, 13 lease, 14 heads,
--       15 due, 16 waits, 17 notes, 18 noted
-- ARGV  1 thread, 2 score to stay below, 3... places of the states that may go
-- Answers 1 when the thread went, 0 when it stays or wasn't there.
local element = redis.call('LINDEX', KEYS[1], -1)
if element then
  local place, score = position(element)
  local named = false
  for at = 3, #ARGV do
    named = named or place == tonumber(ARGV[at])
  end
  if not named or tonumber(score) >= tonumber(ARGV[2]) or redis.call('EXISTS', KEYS[13]) == 1 then
    return 0
  end
  redis.call('DEL', KEYS[1], KEYS[11], KEYS[12])
end
for at = 2, 10 do
  redis.call('ZREM', KEYS[at], ARGV[1])
end
redis.call('HDEL', KEYS[14], ARGV[1])
redis.call('ZREM', KEYS[15], ARGV[1])
redis.call('HDEL', KEYS[16], ARGV[1])
redis.call('DEL', KEYS[17])
redis.call('SREM', KEYS[18], ARGV[1])
return element and 1 or 0

-- name: left_notes
-- KEYS  1 list, 2 notes, 3 noted    ARGV  1 thread
-- Drops the notes of a thread that has no rows: another engine purged it, or it expired.
if redis.call('EXISTS', KEYS[1]) == 0 then
  redis.call('DEL', KEYS[2])
  redis.call('SREM', KEYS[3], ARGV[1])
end
return 1
