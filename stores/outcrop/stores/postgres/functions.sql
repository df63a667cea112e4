-- This build's own functions beside the shared tables: a save, notes, an acquisition and a purge in
-- one round trip each. They do under a thread's lock what the other engines of the format do
-- in a transaction of several statements, and take the same lock.
--
-- They are functions and not single statements because a statement sees the rows as they were
-- when it began, which is before it waited for the lock. In a VOLATILE function at READ
-- COMMITTED each statement looks anew. `outcrop_lock_threads` refuses any other isolation.

-- The threads' locks until the end of the transaction, in the order that everybody takes them.
-- name: lock_threads
CREATE OR REPLACE FUNCTION outcrop_lock_threads(threads TEXT[]) RETURNS VOID
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    key BIGINT;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'checkpoints are written at READ COMMITTED, and this transaction is %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'invalid_transaction_state';
    END IF;
    FOR key IN
        SELECT DISTINCT hashtextextended('checkpoints:' || thread, 0) FROM unnest(threads) AS thread ORDER BY 1
    LOOP
        PERFORM pg_advisory_xact_lock(key);
    END LOOP;
END;
$$;

-- Appends a row of a thread whose lock is held, or takes it first. Returns its sequence, or -1:
-- the log doesn't end where expected; -2: the lease is lost; -3: the row that it builds on isn't
-- the thread's latest. A refused row leaves nothing behind.
-- name: append
CREATE OR REPLACE FUNCTION outcrop_append(
    thread TEXT, schema_version TEXT, status TEXT, suspended_node TEXT, next_node TEXT,
    frozen_state JSONB, metadata JSONB, created_at TEXT, resumed_at TEXT, nested JSONB,
    decision JSONB, wait JSONB, wake_at TEXT, graph_id TEXT, graph_version TEXT,
    expected_end BIGINT, lease_token BIGINT, release BOOLEAN, base_sequence BIGINT, base_token TEXT,
    blob_hashes TEXT[], blob_contents BYTEA[], locked BOOLEAN
) RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    latest RECORD;
    place BIGINT;
BEGIN
    IF NOT locked THEN
        PERFORM outcrop_lock_threads(ARRAY[thread]);
    END IF;
    IF lease_token IS NOT NULL AND NOT EXISTS (
        SELECT FROM checkpoint_leases AS l WHERE l.thread_id = thread AND l.token = lease_token
    ) THEN
        RETURN -2;
    END IF;
    SELECT c.sequence, c.created_at INTO latest
    FROM checkpoints AS c WHERE c.thread_id = thread ORDER BY c.sequence DESC LIMIT 1;
    place := COALESCE(latest.sequence, -1) + 1;
    IF expected_end <> place - 1 THEN
        RETURN -1;
    END IF;
    IF base_sequence IS NOT NULL
        AND (base_sequence, base_token) IS DISTINCT FROM (latest.sequence, latest.created_at) THEN
        RETURN -3;
    END IF;
    INSERT INTO checkpoints
        (thread_id, sequence, schema_version, status, suspended_node, next_node, frozen_state, metadata,
         created_at, resumed_at, nested, decision, wait, wake_at, graph_id, graph_version)
    VALUES
        (thread, place, schema_version, status, suspended_node, next_node, frozen_state, metadata,
         created_at, resumed_at, nested, decision, wait, wake_at, graph_id, graph_version);
    IF cardinality(blob_hashes) > 0 THEN
        INSERT INTO checkpoint_blobs (thread_id, hash, content)
        SELECT thread, blob.hash, blob.content FROM unnest(blob_hashes, blob_contents) AS blob (hash, content)
        ON CONFLICT DO NOTHING;
    END IF;
    IF release THEN
        UPDATE checkpoint_leases AS l SET owner = NULL, expires_at = NULL
        WHERE l.thread_id = thread AND l.token = lease_token;
    END IF;
    RETURN place;
END;
$$;

-- Appends rows in their order; the arrays have an element a row, but for the blobs, which name
-- theirs by `blob_rows` (from 1). Returns what `outcrop_append` says of each: a refused row
-- doesn't keep others out.
-- name: save
CREATE OR REPLACE FUNCTION outcrop_save(
    threads TEXT[], schema_versions TEXT[], statuses TEXT[], suspended_nodes TEXT[], next_nodes TEXT[],
    states JSONB[], metadata_objects JSONB[], created TEXT[], resumed TEXT[], nested_rows JSONB[],
    decisions JSONB[], waits JSONB[], wakes TEXT[], graph_ids TEXT[], graph_versions TEXT[],
    expected_ends BIGINT[], lease_tokens BIGINT[], releases BOOLEAN[],
    base_sequences BIGINT[], base_tokens TEXT[],
    blob_rows INTEGER[], blob_hashes TEXT[], blob_contents BYTEA[]
) RETURNS BIGINT[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    this RECORD;
    hashes TEXT[] := '{}';
    contents BYTEA[] := '{}';
    verdicts BIGINT[] := '{}';
BEGIN
    PERFORM outcrop_lock_threads(threads);
    FOR this IN
        SELECT * FROM unnest(
            threads, schema_versions, statuses, suspended_nodes, next_nodes, states, metadata_objects,
            created, resumed, nested_rows, decisions, waits, wakes, graph_ids, graph_versions,
            expected_ends, lease_tokens, releases, base_sequences, base_tokens
        ) WITH ORDINALITY AS given (
            thread_id, schema_version, status, suspended_node, next_node, frozen_state, metadata,
            created_at, resumed_at, nested, decision, wait, wake_at, graph_id, graph_version,
            expected, token, release, base_sequence, base_token, place
        )
    LOOP
        IF cardinality(blob_rows) > 0 THEN
            SELECT COALESCE(array_agg(blob.hash), '{}'), COALESCE(array_agg(blob.content), '{}')
            INTO hashes, contents
            FROM unnest(blob_rows, blob_hashes, blob_contents) AS blob (place, hash, content)
            WHERE blob.place = this.place;
        END IF;
        verdicts := verdicts || outcrop_append(
            this.thread_id, this.schema_version, this.status, this.suspended_node, this.next_node,
            this.frozen_state, this.metadata, this.created_at, this.resumed_at, this.nested, this.decision,
            this.wait, this.wake_at, this.graph_id, this.graph_version, this.expected, this.token,
            this.release, this.base_sequence, this.base_token, hashes, contents, TRUE
        );
    END LOOP;
    RETURN verdicts;
END;
$$;

-- Puts notes beside a row of a thread whose lock is held; `created` is the row's.
-- name: put_notes
CREATE OR REPLACE FUNCTION outcrop_put_notes(
    thread TEXT, place BIGINT, created TEXT, kinds TEXT[], paths TEXT[], texts TEXT[]
) RETURNS VOID LANGUAGE sql VOLATILE AS $$
    INSERT INTO outcrop_notes (thread_id, sequence, kind, path, created_at, value)
    SELECT thread, place, note.kind, note.path, created, note.value
    FROM unnest(kinds, paths, texts) AS note (kind, path, value)
    ON CONFLICT (thread_id, sequence, kind, path)
    DO UPDATE SET created_at = excluded.created_at, value = excluded.value;
$$;

-- Appends rows as `outcrop_save` does, with their notes, which name their rows by `note_rows` (from 1).
-- name: save_noted
CREATE OR REPLACE FUNCTION outcrop_save_noted(
    threads TEXT[], schema_versions TEXT[], statuses TEXT[], suspended_nodes TEXT[], next_nodes TEXT[],
    states JSONB[], metadata_objects JSONB[], created TEXT[], resumed TEXT[], nested_rows JSONB[],
    decisions JSONB[], waits JSONB[], wakes TEXT[], graph_ids TEXT[], graph_versions TEXT[],
    expected_ends BIGINT[], lease_tokens BIGINT[], releases BOOLEAN[],
    base_sequences BIGINT[], base_tokens TEXT[],
    blob_rows INTEGER[], blob_hashes TEXT[], blob_contents BYTEA[],
    note_rows INTEGER[], note_kinds TEXT[], note_paths TEXT[], note_values TEXT[]
) RETURNS BIGINT[] LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    verdicts BIGINT[];
    this RECORD;
BEGIN
    verdicts := outcrop_save(
        threads, schema_versions, statuses, suspended_nodes, next_nodes, states, metadata_objects,
        created, resumed, nested_rows, decisions, waits, wakes, graph_ids, graph_versions,
        expected_ends, lease_tokens, releases, base_sequences, base_tokens,
        blob_rows, blob_hashes, blob_contents
    );
    FOR this IN
        SELECT note.place, array_agg(note.kind) AS kinds, array_agg(note.path) AS paths,
               array_agg(note.value) AS texts
        FROM unnest(note_rows, note_kinds, note_paths, note_values) AS note (place, kind, path, value)
        WHERE verdicts[note.place] >= 0 GROUP BY note.place
    LOOP
        PERFORM outcrop_put_notes(
            threads[this.place], verdicts[this.place], created[this.place], this.kinds, this.paths, this.texts
        );
    END LOOP;
    RETURN verdicts;
END;
$$;

-- Puts notes beside a thread's latest row, if that is the one told by sequence and time. Returns what
-- `outcrop_append` does.
-- name: add_notes
CREATE OR REPLACE FUNCTION outcrop_add_notes(
    thread TEXT, place BIGINT, created TEXT, lease_token BIGINT,
    kinds TEXT[], paths TEXT[], texts TEXT[]
) RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    latest RECORD;
BEGIN
    PERFORM outcrop_lock_threads(ARRAY[thread]);
    IF lease_token IS NOT NULL AND NOT EXISTS (
        SELECT FROM checkpoint_leases AS l WHERE l.thread_id = thread AND l.token = lease_token
    ) THEN
        RETURN -2;
    END IF;
    SELECT c.sequence, c.created_at INTO latest
    FROM checkpoints AS c WHERE c.thread_id = thread ORDER BY c.sequence DESC LIMIT 1;
    IF (latest.sequence, latest.created_at) IS DISTINCT FROM (place, created) THEN
        RETURN -1;
    END IF;
    PERFORM outcrop_put_notes(thread, place, created, kinds, paths, texts);
    RETURN place;
END;
$$;

-- Takes the thread's lease with the next token, unless somebody holds it or the log doesn't end
-- at `expected_end`. The times are Unix milliseconds.
-- name: acquire_lease
CREATE OR REPLACE FUNCTION outcrop_acquire_lease(
    thread TEXT, new_owner TEXT, ttl BIGINT, expected_end BIGINT,
    OUT verdict TEXT, OUT holder TEXT, OUT token BIGINT, OUT expires BIGINT
) LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    present TIMESTAMPTZ;
    lease RECORD;
BEGIN
    PERFORM outcrop_lock_threads(ARRAY[thread]);
    -- Renewals and releases take no thread lock; the row's own makes them wait for the answer.
    SELECT l.owner, l.token, l.expires_at INTO lease
    FROM checkpoint_leases AS l WHERE l.thread_id = thread FOR UPDATE;
    present := clock_timestamp();
    IF lease.expires_at > present THEN
        verdict := 'held';
        holder := lease.owner;
        token := lease.token;
        expires := floor(extract(epoch FROM lease.expires_at) * 1000);
        RETURN;
    END IF;
    IF expected_end <> (SELECT COALESCE(max(c.sequence), -1) FROM checkpoints AS c WHERE c.thread_id = thread) THEN
        verdict := 'moved';
        RETURN;
    END IF;
    verdict := 'acquired';
    holder := new_owner;
    INSERT INTO checkpoint_leases AS l (thread_id, owner, token, expires_at)
    VALUES (thread, new_owner, 1, present + ttl * interval '1 millisecond')
    ON CONFLICT (thread_id) DO UPDATE SET
        owner = excluded.owner, token = l.token + 1, expires_at = excluded.expires_at
    RETURNING l.token, floor(extract(epoch FROM l.expires_at) * 1000) INTO token, expires;
END;
$$;

-- Deletes all of a thread, if it is still as it was picked and nobody holds it.
-- name: purge_thread
CREATE OR REPLACE FUNCTION outcrop_purge_thread(
    thread TEXT, picked_sequence BIGINT, states TEXT[], older_than TEXT
) RETURNS BOOLEAN LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM outcrop_lock_threads(ARRAY[thread]);
    -- A renewal takes no thread lock; the row's own makes it wait, and then find nothing.
    PERFORM FROM checkpoint_leases AS l WHERE l.thread_id = thread FOR UPDATE;
    DELETE FROM checkpoint_threads AS h
    WHERE h.thread_id = thread AND h.sequence = picked_sequence AND h.state = ANY (states)
      AND h.updated_at < older_than
      AND NOT EXISTS (SELECT FROM checkpoint_leases AS l
                      WHERE l.thread_id = thread AND l.expires_at > clock_timestamp());
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    DELETE FROM checkpoints AS c WHERE c.thread_id = thread;
    DELETE FROM checkpoint_leases AS l WHERE l.thread_id = thread;
    DELETE FROM checkpoint_blobs AS b WHERE b.thread_id = thread;
    DELETE FROM outcrop_notes AS n WHERE n.thread_id = thread;
    RETURN TRUE;
END;
$$;

-- Deletes the notes of a thread that another engine purged, if it hasn't begun anew.
-- name: purge_left_notes
CREATE OR REPLACE FUNCTION outcrop_purge_left_notes(thread TEXT) RETURNS VOID
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    PERFORM outcrop_lock_threads(ARRAY[thread]);
    DELETE FROM outcrop_notes AS n
    WHERE n.thread_id = thread AND NOT EXISTS (SELECT FROM checkpoints AS c WHERE c.thread_id = thread);
END;
$$;
