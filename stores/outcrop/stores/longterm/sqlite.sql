-- The long-term memory of a SQLite file. `{table}` is a checked lowercase name; `:names` are parameters.

-- name: versions
CREATE TABLE IF NOT EXISTS strata_schema_version (
    component TEXT NOT NULL PRIMARY KEY,
    version   INTEGER NOT NULL
);

-- name: settings
CREATE TABLE IF NOT EXISTS memory_settings (
    table_name TEXT NOT NULL PRIMARY KEY,
    dimensions INTEGER NOT NULL
);

-- name: table
CREATE TABLE IF NOT EXISTS {table} (
    namespace  TEXT NOT NULL,
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    model      TEXT NOT NULL,
    embedding  BLOB NOT NULL,
    content    TEXT,
    text       TEXT,
    metadata   TEXT NOT NULL DEFAULT '{{}}',
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (namespace, tenant, id)
);

-- name: by_scope
CREATE INDEX IF NOT EXISTS {table}_scope ON {table} (namespace, tenant, model);

-- name: by_updated
CREATE INDEX IF NOT EXISTS {table}_updated ON {table} (updated_at);

-- name: version
SELECT version FROM strata_schema_version WHERE component = 'memory';

-- name: set_version
INSERT OR REPLACE INTO strata_schema_version (component, version) VALUES ('memory', :version);

-- name: dimensions
SELECT dimensions FROM memory_settings WHERE table_name = :table;

-- name: set_dimensions
INSERT INTO memory_settings (table_name, dimensions) VALUES (:table, :dimensions);

-- name: upsert
INSERT INTO {table} (namespace, tenant, id, model, embedding, content, text, metadata, created_at, updated_at)
VALUES (:namespace, :tenant, :id, :model, :embedding, :content, :text, :metadata, :now, :now)
ON CONFLICT (namespace, tenant, id) DO UPDATE SET
    model = excluded.model,
    embedding = excluded.embedding,
    content = excluded.content,
    text = excluded.text,
    metadata = excluded.metadata,
    updated_at = excluded.updated_at;

-- name: get
SELECT namespace, tenant, id, model, content, text, metadata, created_at, updated_at, embedding
FROM {table} WHERE namespace = :namespace AND tenant = :tenant AND id = :id;

-- name: delete
DELETE FROM {table} WHERE namespace = :namespace AND tenant = :tenant AND id = :id RETURNING id;

-- `:pairs` is a JSON object and `:exclude` a JSON array. Keys are compared as values, since a
-- path to a key with quotes or dots in it would name another one.
-- name: search
SELECT vec_distance_cosine(embedding, :vector) AS distance,
       namespace, tenant, id, model, content, text, metadata, created_at, updated_at, embedding
FROM {table} AS r
WHERE namespace = :namespace AND tenant = :tenant AND model = :model
  AND id NOT IN (SELECT value FROM json_each(:exclude))
  AND NOT EXISTS (SELECT 1 FROM json_each(:pairs) AS wanted
                  WHERE NOT EXISTS (SELECT 1 FROM json_each(r.metadata) AS kept
                                    WHERE kept.key = wanted.key AND kept.value = wanted.value))
ORDER BY distance, id LIMIT :limit;

-- name: list
SELECT namespace, tenant, id, model, content, text, metadata, created_at, updated_at, embedding
FROM {table} AS r
WHERE namespace = :namespace AND tenant = :tenant AND id > :after
  AND NOT EXISTS (SELECT 1 FROM json_each(:pairs) AS wanted
                  WHERE NOT EXISTS (SELECT 1 FROM json_each(r.metadata) AS kept
                                    WHERE kept.key = wanted.key AND kept.value = wanted.value))
ORDER BY id LIMIT :limit;

-- name: purge
DELETE FROM {table} WHERE (namespace, tenant, id) IN (
    SELECT namespace, tenant, id FROM {table}
    WHERE updated_at < :older_than
      AND (:namespace IS NULL OR namespace = :namespace)
      AND (:tenant IS NULL OR tenant = :tenant)
    ORDER BY updated_at, namespace, tenant, id LIMIT :limit
);
