-- The tables of a checkpoint database, exactly as every engine of the format creates them, and ours.
-- Each statement has a name; migrate.py decides which of them run. Nothing names a schema:
-- tables are in the first one of the connection's search_path.

-- name: versions
CREATE TABLE IF NOT EXISTS strata_schema_version (
    component TEXT NOT NULL PRIMARY KEY,
    version   BIGINT NOT NULL
);

-- name: checkpoints
CREATE TABLE IF NOT EXISTS checkpoints (
    thread_id      TEXT NOT NULL,
    sequence       BIGINT NOT NULL,
    schema_version TEXT NOT NULL,
    status         TEXT NOT NULL,
    suspended_node TEXT,
    next_node      TEXT,
    frozen_state   JSONB NOT NULL,
    metadata       JSONB,
    created_at     TEXT NOT NULL,
    resumed_at     TEXT,
    nested         JSONB,
    decision       JSONB,
    wait           JSONB,
    wake_at        TEXT,
    graph_id       TEXT,
    graph_version  TEXT,
    PRIMARY KEY (thread_id, sequence)
);

-- name: later_columns
ALTER TABLE checkpoints
    ADD COLUMN IF NOT EXISTS nested JSONB,
    ADD COLUMN IF NOT EXISTS decision JSONB,
    ADD COLUMN IF NOT EXISTS wait JSONB,
    ADD COLUMN IF NOT EXISTS wake_at TEXT,
    ADD COLUMN IF NOT EXISTS graph_id TEXT,
    ADD COLUMN IF NOT EXISTS graph_version TEXT;

-- Orders and pages compare by bytes, whatever the database's collation.
-- name: heads
CREATE TABLE checkpoint_threads (
    thread_id     TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    sequence      BIGINT NOT NULL,
    state         TEXT NOT NULL,
    updated_at    TEXT COLLATE "C" NOT NULL,
    metadata      JSONB,
    wake_at       TEXT COLLATE "C",
    graph_id      TEXT,
    graph_version TEXT
);

-- name: later_head_columns
ALTER TABLE checkpoint_threads
    ADD COLUMN IF NOT EXISTS wake_at TEXT COLLATE "C",
    ADD COLUMN IF NOT EXISTS graph_id TEXT,
    ADD COLUMN IF NOT EXISTS graph_version TEXT;

-- Fills the heads of a log that was kept without them.
-- name: backfill
INSERT INTO checkpoint_threads
    (thread_id, sequence, state, updated_at, metadata, wake_at, graph_id, graph_version)
SELECT DISTINCT ON (thread_id)
       thread_id, sequence,
       CASE WHEN resumed_at IS NOT NULL THEN 'resumed' ELSE status END,
       COALESCE(resumed_at, created_at), metadata, wake_at, graph_id, graph_version
FROM checkpoints
ORDER BY thread_id, sequence DESC;

-- name: by_state
CREATE INDEX IF NOT EXISTS checkpoint_threads_by_state ON checkpoint_threads (state, updated_at, thread_id);

-- name: by_updated
CREATE INDEX IF NOT EXISTS checkpoint_threads_by_updated ON checkpoint_threads (updated_at, thread_id);

-- name: by_wake
CREATE INDEX IF NOT EXISTS checkpoint_threads_by_wake ON checkpoint_threads (wake_at);

-- name: by_graph
CREATE INDEX IF NOT EXISTS checkpoint_threads_by_graph
    ON checkpoint_threads (graph_id, updated_at, thread_id);

-- name: by_metadata
CREATE INDEX IF NOT EXISTS checkpoint_threads_by_metadata
    ON checkpoint_threads USING gin (metadata jsonb_path_ops);

-- Keeps a thread's head at its highest sequence, whoever inserts the row.
-- name: trigger_function
CREATE OR REPLACE FUNCTION strata_checkpoints_head() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO checkpoint_threads AS head
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
    WHERE excluded.sequence > head.sequence;
    RETURN NULL;
END;
$$;

-- name: trigger
CREATE OR REPLACE TRIGGER checkpoints_head AFTER INSERT ON checkpoints
    FOR EACH ROW EXECUTE FUNCTION strata_checkpoints_head();

-- name: leases
CREATE TABLE IF NOT EXISTS checkpoint_leases (
    thread_id  TEXT NOT NULL PRIMARY KEY,
    owner      TEXT,
    token      BIGINT NOT NULL,
    expires_at TIMESTAMPTZ
);

-- name: blobs
CREATE TABLE IF NOT EXISTS checkpoint_blobs (
    thread_id TEXT NOT NULL,
    hash      TEXT NOT NULL,
    content   BYTEA NOT NULL,
    PRIMARY KEY (thread_id, hash)
);

-- What is ours beside rows, see NoteStore. `created_at` is the row's, and tells it from one at the
-- same place in a later log, since another engine's purge leaves this table alone.
-- name: notes
CREATE TABLE IF NOT EXISTS outcrop_notes (
    thread_id  TEXT NOT NULL,
    sequence   BIGINT NOT NULL,
    kind       TEXT NOT NULL,
    path       TEXT NOT NULL,
    created_at TEXT NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (thread_id, sequence, kind, path)
);
