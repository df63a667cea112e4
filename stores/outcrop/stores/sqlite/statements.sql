-- The statements of the SQLite store; `:names` are parameters.

-- Appends a row in one atomic step. Conditions live in the statement, so that they hold
-- under its own write lock; no row returned means they didn't. `:base` is the row that this
-- one's stored form relies on: still the latest, and with the `created_at` it had.
-- name: save
INSERT INTO checkpoints
    (thread_id, sequence, schema_version, status, suspended_node, next_node, frozen_state, metadata,
     created_at, resumed_at, nested, decision, wait, wake_at, graph_id, graph_version)
SELECT :thread_id, latest + 1, :schema_version, :status, :suspended_node, :next_node, :frozen_state,
       :metadata, :created_at, :resumed_at, :nested, :decision, :wait, :wake_at, :graph_id, :graph_version
FROM (SELECT COALESCE(MAX(sequence), -1) AS latest FROM checkpoints WHERE thread_id = :thread_id)
WHERE (:expected IS NULL OR latest = :expected)
  AND (:token IS NULL
       OR :token = (SELECT token FROM checkpoint_leases WHERE thread_id = :thread_id))
  AND (:base IS NULL
       OR latest = :base AND :base_token = (SELECT created_at FROM checkpoints
                                            WHERE thread_id = :thread_id AND sequence = :base))
RETURNING sequence;

-- name: add_blob
INSERT OR IGNORE INTO checkpoint_blobs (thread_id, hash, content) VALUES (?, ?, ?);

-- name: put_note
INSERT INTO outcrop_notes (thread_id, sequence, created_at, kind, path, value) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (thread_id, sequence, kind, path)
DO UPDATE SET created_at = excluded.created_at, value = excluded.value;

-- The notes of rows; `:rows` is a JSON array of sequences and times of creation.
-- name: notes
SELECT n.sequence, n.kind, n.path, n.value
FROM json_each(:rows) AS wanted JOIN outcrop_notes AS n
  ON n.thread_id = :thread_id AND n.sequence = json_extract(wanted.value, '$[0]')
 AND n.created_at = json_extract(wanted.value, '$[1]');

-- name: has_notes
SELECT COUNT(*) FROM sqlite_master WHERE type = 'table' AND name = 'outcrop_notes';

-- name: latest
SELECT sequence, created_at FROM checkpoints WHERE thread_id = :thread_id ORDER BY sequence DESC LIMIT 1;

-- name: token
SELECT token FROM checkpoint_leases WHERE thread_id = :thread_id;

-- The latest row and the rows it is a delta of, oldest first.
-- name: load
WITH latest AS (
    SELECT sequence,
           CASE WHEN schema_version IN ('1.8.0', '1.9.0') AND json_valid(frozen_state)
                THEN MAX(COALESCE(json_extract(frozen_state, '$.depth'), 0), 0) ELSE 0 END AS depth
    FROM checkpoints WHERE thread_id = :thread_id ORDER BY sequence DESC LIMIT 1
)
SELECT c.sequence, c.thread_id, c.schema_version, c.status, c.suspended_node, c.next_node,
       c.frozen_state, c.metadata, c.created_at, c.resumed_at, c.nested, c.decision, c.wait,
       c.graph_id, c.graph_version
FROM latest JOIN checkpoints AS c
  ON c.thread_id = :thread_id AND c.sequence BETWEEN latest.sequence - latest.depth AND latest.sequence
ORDER BY c.sequence;

-- name: log
SELECT sequence, thread_id, schema_version, status, suspended_node, next_node,
       frozen_state, metadata, created_at, resumed_at, nested, decision, wait,
       graph_id, graph_version
FROM checkpoints WHERE thread_id = :thread_id AND sequence > :after
ORDER BY sequence LIMIT :limit;

-- `:hashes` is a JSON array.
-- name: blobs
SELECT hash, content FROM checkpoint_blobs
WHERE thread_id = :thread_id AND hash IN (SELECT value FROM json_each(:hashes));

-- name: end
SELECT COALESCE(MAX(sequence), -1) FROM checkpoints WHERE thread_id = :thread_id;

-- Takes a free lease (none, released or expired at `:now`) of a thread whose log ends at
-- `:expected`, if that is given; no row returned means it is held or has moved.
-- name: acquire
INSERT INTO checkpoint_leases (thread_id, owner, token, expires_at)
SELECT :thread_id, :owner, 1, :expires_at
WHERE :expected IS NULL
   OR :expected = (SELECT COALESCE(MAX(sequence), -1) FROM checkpoints WHERE thread_id = :thread_id)
ON CONFLICT (thread_id) DO UPDATE SET
    owner = excluded.owner,
    token = checkpoint_leases.token + 1,
    expires_at = excluded.expires_at
WHERE checkpoint_leases.expires_at IS NULL OR checkpoint_leases.expires_at <= :now
RETURNING token;

-- name: holder
SELECT owner, token, expires_at FROM checkpoint_leases
WHERE thread_id = :thread_id AND expires_at > :now;

-- name: renew
UPDATE checkpoint_leases SET owner = :owner, expires_at = :expires_at
WHERE thread_id = :thread_id AND token = :token
RETURNING token;

-- The row stays: its token goes on counting.
-- name: release
UPDATE checkpoint_leases SET owner = NULL, expires_at = NULL
WHERE thread_id = :thread_id AND token = :token
RETURNING token;

-- A listing, less its conditions, order and limit. Whatever the head has comes from there: a
-- column behind a row's state is read through the state, unless it is NULL.
-- name: list
SELECT h.sequence, h.thread_id, c.schema_version, c.status, c.suspended_node, c.next_node,
       CASE WHEN c.schema_version IN ('1.8.0', '1.9.0') AND json_valid(c.frozen_state)
            THEN json_extract(c.frozen_state, '$.checkpoint_version') END,
       h.metadata, h.updated_at, h.state, c.nested, c.wait, h.graph_id, h.graph_version
FROM checkpoint_threads AS h
JOIN checkpoints AS c ON c.thread_id = h.thread_id AND c.sequence = h.sequence;

-- `:states` is a JSON array.
-- name: purgeable
SELECT thread_id FROM checkpoint_threads AS h
WHERE state IN (SELECT value FROM json_each(:states)) AND updated_at < :older_than
  AND NOT EXISTS (SELECT 1 FROM checkpoint_leases AS l
                  WHERE l.thread_id = h.thread_id AND l.expires_at > :now)
ORDER BY updated_at, thread_id LIMIT :limit;

-- name: purge_checkpoints
DELETE FROM checkpoints WHERE thread_id = ?;

-- name: purge_heads
DELETE FROM checkpoint_threads WHERE thread_id = ?;

-- name: purge_leases
DELETE FROM checkpoint_leases WHERE thread_id = ?;

-- name: purge_blobs
DELETE FROM checkpoint_blobs WHERE thread_id = ?;

-- name: purge_notes
DELETE FROM outcrop_notes WHERE thread_id = ?;

-- Those of threads that another engine purged.
-- name: purge_left_notes
DELETE FROM outcrop_notes
WHERE NOT EXISTS (SELECT 1 FROM checkpoint_threads AS h WHERE h.thread_id = outcrop_notes.thread_id);
