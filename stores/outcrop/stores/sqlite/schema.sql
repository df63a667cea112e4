-- The tables of a checkpoint database, exactly as every engine of the format creates them, and ours.
-- Each statement has a name; migrate.py decides which of them run.

-- name: versions
CREATE TABLE IF NOT EXISTS strata_schema_version (
    component TEXT NOT NULL PRIMARY KEY,
    version   INTEGER NOT NULL
);

-- name: checkpoints
CREATE TABLE IF NOT EXISTS checkpoints (
    thread_id      TEXT NOT NULL,
    sequence       INTEGER NOT NULL,
    schema_version TEXT NOT NULL,
    status         TEXT NOT NULL,
    suspended_node TEXT,
    next_node      TEXT,
    frozen_state   TEXT NOT NULL,
    metadata       TEXT,
    created_at     TEXT NOT NULL,
    resumed_at     TEXT,
    nested         TEXT,
    decision       TEXT,
    wait           TEXT,
    wake_at        TEXT,
    graph_id       TEXT,
    graph_version  TEXT,
    PRIMARY KEY (thread_id, sequence)
);

-- name: heads
CREATE TABLE checkpoint_threads (
    thread_id     TEXT NOT NULL PRIMARY KEY,
    sequence      INTEGER NOT NULL,
    state         TEXT NOT NULL,
    updated_at    TEXT NOT NULL,
    metadata      TEXT,
    wake_at       TEXT,
    graph_id      TEXT,
    graph_version TEXT
);

-- Fills the heads of a log that was kept without them.
-- name: backfill
INSERT INTO checkpoint_threads
    (thread_id, sequence, state, updated_at, metadata, wake_at, graph_id, graph_version)
SELECT thread_id, sequence,
       CASE WHEN resumed_at IS NOT NULL THEN 'resumed' ELSE status END,
       COALESCE(resumed_at, created_at), metadata, wake_at, graph_id, graph_version
FROM checkpoints AS c
WHERE sequence = (SELECT MAX(sequence) FROM checkpoints WHERE thread_id = c.thread_id);

-- name: by_state
CREATE INDEX IF NOT EXISTS checkpoint_threads_by_state ON checkpoint_threads (state, updated_at, thread_id);

-- name: by_updated
CREATE INDEX IF NOT EXISTS checkpoint_threads_by_updated ON checkpoint_threads (updated_at, thread_id);

-- name: by_wake
CREATE INDEX IF NOT EXISTS checkpoint_threads_by_wake ON checkpoint_threads (wake_at);

-- name: by_graph
CREATE INDEX IF NOT EXISTS checkpoint_threads_by_graph
    ON checkpoint_threads (graph_id, updated_at, thread_id);

-- name: drop_trigger
DROP TRIGGER IF EXISTS checkpoints_head;

-- Keeps a thread's head at its highest sequence, whoever inserts the row.
-- name: trigger
CREATE TRIGGER checkpoints_head AFTER INSERT ON checkpoints
BEGIN
    INSERT INTO checkpoint_threads
        (thread_id, sequence, state, updated_at, metadata, wake_at, graph_id, graph_version)
    VALUES (NEW.thread_id, NEW.sequence,
            CASE WHEN NEW.resumed_at IS NOT NULL THEN 'resumed' ELSE NEW.status END,
            COALESCE(NEW.resumed_at, NEW.created_at),
            NEW.metadata, NEW.wake_at, NEW.graph_id, NEW.graph_version)
    ON CONFLICT (thread_id) DO UPDATE SET
        sequence = excluded.sequence,
        state = excluded.state,
        updated_at = excluded.updated_at,
        metadata = excluded.metadata,
        wake_at = excluded.wake_at,
        graph_id = excluded.graph_id,
        graph_version = excluded.graph_version
    WHERE excluded.sequence > checkpoint_threads.sequence;
END;

-- name: leases
CREATE TABLE IF NOT EXISTS checkpoint_leases (
    thread_id  TEXT NOT NULL PRIMARY KEY,
    owner      TEXT,
    token      INTEGER NOT NULL,
    expires_at INTEGER
);

-- name: blobs
CREATE TABLE IF NOT EXISTS checkpoint_blobs (
    thread_id TEXT NOT NULL,
    hash      TEXT NOT NULL,
    content   BLOB NOT NULL,
    PRIMARY KEY (thread_id, hash)
);

-- What is ours beside rows, see NoteStore. `created_at` is the row's, and tells it from one at the
-- same place in a later log, since another engine's purge leaves this table alone.
-- name: notes
CREATE TABLE IF NOT EXISTS outcrop_notes (
    thread_id  TEXT NOT NULL,
    sequence   INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    path       TEXT NOT NULL,
    created_at TEXT NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (thread_id, sequence, kind, path)
);
