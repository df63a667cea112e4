-- The statements of the Postgres store. A save, notes, an acquisition and a purge are functions: see
-- functions.sql.

-- name: append
SELECT outcrop_append($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                      $19, $20, $21, $22, FALSE);

-- name: save
SELECT outcrop_save($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                    $19, $20, $21, $22, $23);

-- name: save_noted
SELECT outcrop_save_noted($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18,
                          $19, $20, $21, $22, $23, $24, $25, $26, $27);

-- name: add_notes
SELECT outcrop_add_notes($1, $2, $3, $4, $5, $6, $7);

-- The notes of rows, told by their sequences and times of creation.
-- name: notes
SELECT n.sequence, n.kind, n.path, n.value
FROM unnest($2::BIGINT[], $3::TEXT[]) AS wanted (sequence, created_at)
JOIN outcrop_notes AS n
  ON n.thread_id = $1 AND n.sequence = wanted.sequence AND n.created_at = wanted.created_at;

-- name: has_notes
SELECT to_regclass('outcrop_notes') IS NOT NULL;

-- name: wait_for_saves
SELECT outcrop_lock_threads($1);

-- Ends backends of this role and waits until they are gone; false when one isn't.
-- name: end_backends
SELECT COALESCE(bool_and(pg_terminate_backend(pid, 5000)), TRUE) FROM pg_stat_activity
WHERE pid = ANY ($1::INTEGER[]) AND usename = current_user;

-- The latest row and the rows it is a delta of, oldest first.
-- name: load
WITH latest AS (
    SELECT sequence,
           CASE WHEN schema_version IN ('1.8.0', '1.9.0') AND jsonb_typeof(frozen_state -> 'depth') = 'number'
                THEN GREATEST((frozen_state ->> 'depth')::NUMERIC, 0) ELSE 0 END AS depth
    FROM checkpoints WHERE thread_id = $1 ORDER BY sequence DESC LIMIT 1
)
SELECT c.sequence, c.thread_id, c.schema_version, c.status, c.suspended_node, c.next_node,
       c.frozen_state, c.metadata, c.created_at, c.resumed_at, c.nested, c.decision, c.wait,
       c.graph_id, c.graph_version
FROM latest JOIN checkpoints AS c
  ON c.thread_id = $1 AND c.sequence BETWEEN latest.sequence - latest.depth AND latest.sequence
ORDER BY c.sequence;

-- name: log
SELECT sequence, thread_id, schema_version, status, suspended_node, next_node,
       frozen_state, metadata, created_at, resumed_at, nested, decision, wait,
       graph_id, graph_version
FROM checkpoints WHERE thread_id = $1 AND sequence > $2
ORDER BY sequence LIMIT $3;

-- The newest rows of a thread, oldest first.
-- name: tail
SELECT sequence, thread_id, schema_version, status, suspended_node, next_node,
       frozen_state, metadata, created_at, resumed_at, nested, decision, wait,
       graph_id, graph_version
FROM (SELECT * FROM checkpoints WHERE thread_id = $1 ORDER BY sequence DESC LIMIT $2) AS newest
ORDER BY sequence;

-- name: blobs
SELECT hash, content FROM checkpoint_blobs WHERE thread_id = $1 AND hash = ANY ($2);

-- name: acquire
SELECT verdict, holder, token, expires FROM outcrop_acquire_lease($1, $2, $3, $4);

-- name: renew
UPDATE checkpoint_leases
SET owner = $2, expires_at = clock_timestamp() + $4::BIGINT * interval '1 millisecond'
WHERE thread_id = $1 AND token = $3
RETURNING floor(extract(epoch FROM expires_at) * 1000)::BIGINT;

-- The row stays: its token goes on counting.
-- name: release
UPDATE checkpoint_leases SET owner = NULL, expires_at = NULL
WHERE thread_id = $1 AND token = $2
RETURNING token;

-- name: holder
SELECT owner, token, floor(extract(epoch FROM expires_at) * 1000)::BIGINT FROM checkpoint_leases
WHERE thread_id = $1 AND expires_at > clock_timestamp();

-- A listing's heads, less their conditions, order and limit.
-- name: heads
SELECT h.sequence, h.thread_id, h.metadata, h.updated_at, h.state, h.graph_id, h.graph_version
FROM checkpoint_threads AS h;

-- What the heads of a `page` don't have. The state of a row stays unread, but for the version
-- inside an envelope. The heads' thread_id has a collation of its own, under which the index of
-- the rows can't be used; equality is the same under any.
-- name: list
SELECT page.sequence, page.thread_id, c.schema_version, c.status, c.suspended_node, c.next_node,
       CASE WHEN c.schema_version IN ('1.8.0', '1.9.0') THEN c.frozen_state ->> 'checkpoint_version' END,
       page.metadata, page.updated_at, page.state, c.nested, c.wait, page.graph_id, page.graph_version
FROM page
JOIN checkpoints AS c
  ON c.thread_id = page.thread_id COLLATE "default" AND c.sequence = page.sequence
ORDER BY page.updated_at DESC, page.thread_id DESC;

-- name: purgeable
SELECT thread_id, sequence FROM checkpoint_threads AS h
WHERE state = ANY ($1) AND updated_at < $2
  AND NOT EXISTS (SELECT FROM checkpoint_leases AS l
                  WHERE l.thread_id = h.thread_id COLLATE "default" AND l.expires_at > clock_timestamp())
ORDER BY updated_at, thread_id LIMIT $3;

-- Whether there is such a thread.
-- name: head
SELECT sequence FROM checkpoint_threads WHERE thread_id = $1;

-- name: purge
SELECT outcrop_purge_thread($1, $2, $3, $4);

-- Threads that have notes and no rows: another engine purged them.
-- name: left_notes
SELECT DISTINCT thread_id FROM outcrop_notes AS n
WHERE NOT EXISTS (SELECT FROM checkpoint_threads AS h WHERE h.thread_id = n.thread_id COLLATE "C")
LIMIT $1;

-- name: purge_left_notes
SELECT outcrop_purge_left_notes($1);
