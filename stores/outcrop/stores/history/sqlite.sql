-- The history of a SQLite file; `:names` are parameters.

-- name: table
CREATE TABLE IF NOT EXISTS history_records (
    session_id TEXT NOT NULL,
    sequence   INTEGER NOT NULL,
    role       TEXT NOT NULL,
    content    TEXT NOT NULL,
    timestamp  TEXT NOT NULL,
    PRIMARY KEY (session_id, sequence)
);

-- One statement, which takes the file's lock before it looks: two writers can't take one place.
-- name: append
INSERT INTO history_records (session_id, sequence, role, content, timestamp)
SELECT :session_id, COALESCE(MAX(sequence), -1) + 1, :role, :content, :timestamp
FROM history_records WHERE session_id = :session_id;

-- name: latest
SELECT role, content, timestamp FROM history_records
WHERE session_id = :session_id ORDER BY sequence DESC LIMIT :limit;
