-- The long-term memory of a Postgres database. `{table}` and `{name}` are a checked lowercase
-- name with and without its schema.

-- The format's DDL lock: the bytes "STRATA", the same number in every engine.
-- name: lock
SELECT pg_advisory_xact_lock(91621622371393);

-- name: extension
CREATE EXTENSION IF NOT EXISTS vector;

-- name: table
CREATE TABLE IF NOT EXISTS {table} (
    namespace  TEXT COLLATE "C" NOT NULL,
    tenant     TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    model      TEXT NOT NULL,
    embedding  vector({dimensions}) NOT NULL,
    content    JSONB,
    text       TEXT,
    metadata   JSONB NOT NULL DEFAULT '{{}}',
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL,
    PRIMARY KEY (namespace, tenant, id)
);

-- name: by_scope
CREATE INDEX IF NOT EXISTS {name}_scope ON {table} (namespace, tenant, model);

-- name: by_updated
CREATE INDEX IF NOT EXISTS {name}_updated ON {table} (updated_at);

-- name: hnsw
CREATE INDEX IF NOT EXISTS {name}_embedding_hnsw ON {table}
    USING hnsw (embedding vector_cosine_ops) WITH (m = {m}, ef_construction = {ef_construction});

-- The dimensions are the column's type modifier; no row where there is no table.
-- name: dimensions
SELECT atttypmod FROM pg_attribute
WHERE attrelid = to_regclass($1::text) AND attname = 'embedding' AND NOT attisdropped;

-- Arrays have an element a record. Their keys are distinct and in order, so that two batches
-- lock the rows that they share in one order.
-- name: upsert
INSERT INTO {table} AS r
    (namespace, tenant, id, model, embedding, content, text, metadata, created_at, updated_at)
SELECT namespace, tenant, id, model, embedding::vector, content::jsonb, text, metadata::jsonb, $9, $9
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[])
    AS given (namespace, tenant, id, model, embedding, content, text, metadata)
ON CONFLICT (namespace, tenant, id) DO UPDATE SET
    model = excluded.model,
    embedding = excluded.embedding,
    content = excluded.content,
    text = excluded.text,
    metadata = excluded.metadata,
    updated_at = excluded.updated_at;

-- name: get
SELECT namespace, tenant, id, model, content, text, metadata, created_at, updated_at, embedding::text
FROM {table} WHERE namespace = $1 AND tenant = $2 AND id = $3;

-- name: delete
DELETE FROM {table} WHERE namespace = $1 AND tenant = $2 AND id = $3 RETURNING id;

-- Every record of the scope is compared.
-- name: search
SELECT embedding <=> $4::text::vector AS distance,
       namespace, tenant, id, model, content, text, metadata, created_at, updated_at, embedding::text
FROM {table}
WHERE namespace = $1 AND tenant = $2 AND model = $3 AND id <> ALL ($5::text[]) AND metadata @> $6::text::jsonb
ORDER BY distance, id LIMIT $7;

-- An HNSW index is walked only by its own order, so ties are the reader's to sort.
-- name: search_index
SELECT embedding <=> $4::text::vector AS distance,
       namespace, tenant, id, model, content, text, metadata, created_at, updated_at, embedding::text
FROM {table}
WHERE namespace = $1 AND tenant = $2 AND model = $3 AND id <> ALL ($5::text[]) AND metadata @> $6::text::jsonb
ORDER BY embedding <=> $4::text::vector LIMIT $7;

-- Goes on through the index until the filters have let enough pass.
-- name: iterate
SET LOCAL hnsw.iterative_scan = strict_order;

-- name: list
SELECT namespace, tenant, id, model, content, text, metadata, created_at, updated_at, embedding::text
FROM {table}
WHERE namespace = $1 AND tenant = $2 AND id > $3 AND metadata @> $4::text::jsonb
ORDER BY id LIMIT $5;

-- The age is checked again on the row that is deleted: one written meanwhile stays.
-- name: purge
WITH purged AS (
    DELETE FROM {table} WHERE updated_at < $1 AND (namespace, tenant, id) IN (
        SELECT namespace, tenant, id FROM {table}
        WHERE updated_at < $1 AND ($2::text IS NULL OR namespace = $2) AND ($3::text IS NULL OR tenant = $3)
        ORDER BY updated_at, namespace, tenant, id LIMIT $4
    ) RETURNING 1
)
SELECT count(*) FROM purged;
