-- The history of a Postgres database, and this build's own function beside the shared table.

-- name: table
CREATE TABLE IF NOT EXISTS history_records (
    session_id TEXT NOT NULL,
    sequence   BIGINT NOT NULL,
    role       TEXT NOT NULL,
    content    TEXT NOT NULL,
    timestamp  TEXT NOT NULL,
    PRIMARY KEY (session_id, sequence)
);

-- One round trip for what other engines of the format do in a transaction under the same lock.
-- A single statement wouldn't do: it sees the rows as they were before it waited for the lock,
-- while in a VOLATILE function at READ COMMITTED each statement looks anew.
-- name: function
CREATE OR REPLACE FUNCTION outcrop_append_history(
    of_session TEXT, its_role TEXT, its_content TEXT, its_timestamp TEXT
) RETURNS VOID LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'messages are appended at READ COMMITTED, and this transaction is %',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'invalid_transaction_state';
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('history:' || of_session, 0));
    INSERT INTO history_records (session_id, sequence, role, content, timestamp)
    SELECT of_session, COALESCE(MAX(h.sequence), -1) + 1, its_role, its_content, its_timestamp
    FROM history_records AS h WHERE h.session_id = of_session;
END;
$$;

-- name: append
SELECT outcrop_append_history($1, $2, $3, $4);

-- name: latest
SELECT role, content, timestamp FROM history_records
WHERE session_id = $1 ORDER BY sequence DESC LIMIT $2;
