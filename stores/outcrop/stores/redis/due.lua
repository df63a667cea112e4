-- The scripts of the threads by wake time (see due.py); their other parts, and what the keys hold, are in
-- scripts.lua.

-- name: catch_up
-- KEYS  1 waking, 2 heads, 3 due, 4 waits
-- ARGV  1 score, 2 thread to go on below ('' both: from the newest), 3 count, 4 what a list's key begins with,
--       5 score to stop below ('' as waits says, which is everything when due and waits aren't whole),
--       6 1 to note what differs, 0 only to look, 7 most bytes of rows to read
-- Looks for waiting threads that due and waits don't have as they are. Answers {1 when there is no more to look
-- at, threads that differed, newest score of all ('' none), score stopped at, score and thread to go on below,
-- the server's time in seconds}.
local KNOWN = '\255'
local notes, floor = ARGV[6] == '1', ARGV[5]
if floor == '' then
  floor = redis.call('HGET', KEYS[4], KNOWN) or '0'
  if floor ~= '0' and redis.call('ZCARD', KEYS[3]) + 1 ~= redis.call('HLEN', KEYS[4]) then
    floor = '0'
    if notes then
      redis.call('UNLINK', KEYS[3], KEYS[4])
    end
  end
end
local newest = redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or ''
local start, stop = 0, redis.call('ZCOUNT', KEYS[1], floor, '+inf')
if ARGV[1] ~= '' then
  start = first_below(KEYS[1], ARGV[1], ARGV[2])
end
local done = stop <= start + ARGV[3]
stop = math.min(stop, start + ARGV[3])
local members, threads, noted = {}, {}, {}
if start < stop then
  members = redis.call('ZREVRANGE', KEYS[1], start, stop - 1, 'WITHSCORES')
  for at = 1, #members, 2 do
    threads[#threads + 1] = members[at]
  end
  noted = redis.call('HMGET', KEYS[4], unpack(threads))
end
local differed, bytes, last = 0, tonumber(ARGV[7]), 0
for at, thread in ipairs(threads) do
  local score = members[2 * at]
  last = at
  if noted[at] ~= redis.call('LLEN', ARGV[4] .. thread) .. ':' .. score then
    differed = differed + 1
    if notes then
      local length, text = row_of(KEYS[2], ARGV[4], thread, score)
      local whole, row = pcall(cjson.decode, text)
      redis.call('ZADD', KEYS[3], whole and type(row) == 'table' and wake_of(row) or '0', thread)
      redis.call('HSET', KEYS[4], thread, length .. ':' .. score)
      bytes = bytes - #text
      if bytes < 0 then
        done = false
        break
      end
    end
  end
end
if done and floor ~= '0' and ARGV[1] == '' and redis.call('ZCARD', KEYS[3]) < redis.call('ZCARD', KEYS[1]) then
  done, differed, floor = false, differed + 1, '0' -- older ones are missing too
end
local score, thread = members[2 * last] or '', threads[last] or ''
return {done and 1 or 0, differed, newest, floor, score, thread, redis.call('TIME')[1]}

-- name: due
-- KEYS  1 waking, 2 heads, 3 due, 4 waits
-- ARGV  1 score, 2 thread to go on below ('' both: from the newest), 3 count, 4 score to stay above ('' none),
--       5 what a list's key begins with, 6 wake time, 7 most due threads to look at,
--       8 how far back to compare from now on ('' as before), 9 1 to take out the threads that wait no longer
-- Answers as `page` does of waking, less the threads that wake later; nothing when too many are due, or due and
-- waits aren't whole.
local KNOWN = '\255'
local known = redis.call('HGET', KEYS[4], KNOWN)
if ARGV[8] ~= '' and (not known or tonumber(known) < tonumber(ARGV[8])) then
  redis.call('HSET', KEYS[4], KNOWN, ARGV[8])
  known = ARGV[8]
end
if not known or redis.call('ZCARD', KEYS[3]) + 1 ~= redis.call('HLEN', KEYS[4])
    or redis.call('ZCOUNT', KEYS[3], '-inf', ARGV[6]) > tonumber(ARGV[7]) then
  return false
end
local due = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', ARGV[6])
local scores = #due > 0 and redis.call('ZMSCORE', KEYS[1], unpack(due)) or {}
local start, above, count = tonumber(ARGV[1]), tonumber(ARGV[4]), tonumber(ARGV[3])
local found, times = {}, {}
for at, thread in ipairs(due) do
  local time = scores[at] and tonumber(scores[at])
  if not time then
    if ARGV[9] == '1' then
      redis.call('ZREM', KEYS[3], thread)
      redis.call('HDEL', KEYS[4], thread)
    end
  elseif (not start or time < start or time == start and below(thread, ARGV[2])) and (not above or time > above) then
    found[#found + 1] = {thread, scores[at]}
    times[#times + 1] = time
  end
end
table.sort(times)
local oldest, newest = times[#times - count + 1] or 0, {}
for _, it in ipairs(found) do
  if tonumber(it[2]) >= oldest then
    newest[#newest + 1] = it
  end
end
table.sort(newest, newest_first)
return with_rows(newest, count, KEYS[2], ARGV[5])
