BEGIN TRANSACTION;
CREATE TABLE checkpoint_blobs (
    thread_id TEXT NOT NULL,
    hash      TEXT NOT NULL,
    content   BLOB NOT NULL,
    PRIMARY KEY (thread_id, hash)
);
CREATE TABLE checkpoint_leases (
    thread_id  TEXT NOT NULL PRIMARY KEY,
    owner      TEXT,
    token      INTEGER NOT NULL,
    expires_at INTEGER
);
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
INSERT INTO "checkpoint_threads" VALUES('order-1',4,'interrupted','2026-12-01T13:21:17Z','{"strata.hops":"1"}',NULL,'golden','1');
CREATE TABLE checkpoints (
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
INSERT INTO "checkpoints" VALUES('order-1',0,'1.7.0','running',NULL,'checks','{}','{"strata.hops":"0"}','2026-12-01T13:21:17Z',NULL,NULL,NULL,NULL,NULL,'golden','1');
INSERT INTO "checkpoints" VALUES('order-1',1,'1.6.0','interrupted','checks','checks','{}','{"strata.hops":"0"}','2026-12-01T13:21:17Z',NULL,NULL,NULL,NULL,NULL,'golden','1');
INSERT INTO "checkpoints" VALUES('order-1',2,'1.7.0','running','checks','checks','{}','{"strata.hops":"0"}','2026-12-01T13:21:17Z',NULL,NULL,'{"boundary":"checks","is_approved":true,"reviewer":"","overrides":{},"decided_at":"2026-12-01T13:21:17Z"}',NULL,NULL,'golden','1');
INSERT INTO "checkpoints" VALUES('order-1',3,'1.6.0','interrupted','checks','checks','{}','{"strata.hops":"0"}','2026-12-01T13:21:17Z',NULL,NULL,'{"boundary":"checks","is_approved":true,"reviewer":"","overrides":{},"decided_at":"2026-12-01T13:21:17Z"}',NULL,NULL,'golden','1');
INSERT INTO "checkpoints" VALUES('order-1',4,'1.6.0','interrupted','checks','checks','{}','{"strata.hops":"1"}','2026-12-01T13:21:17Z',NULL,NULL,'{"boundary":"checks","is_approved":true,"reviewer":"","overrides":{},"decided_at":"2026-12-01T13:21:17Z"}',NULL,NULL,'golden','1');
CREATE TABLE outcrop_notes (
    thread_id  TEXT NOT NULL,
    sequence   INTEGER NOT NULL,
    kind       TEXT NOT NULL,
    path       TEXT NOT NULL,
    created_at TEXT NOT NULL,
    value      TEXT NOT NULL,
    PRIMARY KEY (thread_id, sequence, kind, path)
);
INSERT INTO "outcrop_notes" VALUES('order-1',0,'finished','checks/score','2026-12-01T13:21:17Z','{"score":7}');
INSERT INTO "outcrop_notes" VALUES('order-1',1,'finished','checks/score','2026-12-01T13:21:17Z','{"score":7}');
INSERT INTO "outcrop_notes" VALUES('order-1',1,'question','checks/review','2026-12-01T13:21:17Z','[{"id":"first","position":0,"payload":{"is":"it é?"}}]');
INSERT INTO "outcrop_notes" VALUES('order-1',2,'finished','checks/score','2026-12-01T13:21:17Z','{"score":7}');
INSERT INTO "outcrop_notes" VALUES('order-1',2,'answer','checks/review','2026-12-01T13:21:17Z','[{"id":"first","value":{"yes":true}}]');
INSERT INTO "outcrop_notes" VALUES('order-1',3,'finished','checks/score','2026-12-01T13:21:17Z','{"score":7}');
INSERT INTO "outcrop_notes" VALUES('order-1',3,'answer','checks/review','2026-12-01T13:21:17Z','[{"id":"first","value":{"yes":true}}]');
INSERT INTO "outcrop_notes" VALUES('order-1',3,'question','checks/review','2026-12-01T13:21:17Z','[{"id":"second","position":1,"payload":null}]');
INSERT INTO "outcrop_notes" VALUES('order-1',4,'answer','checks/review','2026-12-01T13:21:17Z','[{"id":"first","value":{"yes":true}}]');
INSERT INTO "outcrop_notes" VALUES('order-1',4,'finished','checks/score','2026-12-01T13:21:17Z','{"score":7}');
INSERT INTO "outcrop_notes" VALUES('order-1',4,'question','checks/review','2026-12-01T13:21:17Z','[{"id":"second","position":1,"payload":null}]');
INSERT INTO "outcrop_notes" VALUES('order-1',4,'parent','','2026-12-01T13:21:17Z','{"sequence":3}');
CREATE TABLE strata_schema_version (
    component TEXT NOT NULL PRIMARY KEY,
    version   INTEGER NOT NULL
);
INSERT INTO "strata_schema_version" VALUES('checkpoints',2);
INSERT INTO "strata_schema_version" VALUES('outcrop',1);
CREATE INDEX checkpoint_threads_by_state ON checkpoint_threads (state, updated_at, thread_id);
CREATE INDEX checkpoint_threads_by_updated ON checkpoint_threads (updated_at, thread_id);
CREATE INDEX checkpoint_threads_by_wake ON checkpoint_threads (wake_at);
CREATE INDEX checkpoint_threads_by_graph
    ON checkpoint_threads (graph_id, updated_at, thread_id);
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
COMMIT;
