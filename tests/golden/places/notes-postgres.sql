--
-- PostgreSQL database dump
--


-- Dumped from database version 15.18 (Debian 15.18-0+deb12u1)
-- Dumped by pg_dump version 15.18 (Debian 15.18-0+deb12u1)

SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SELECT pg_catalog.set_config('search_path', '', false);
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;

--
-- Name: outcrop_acquire_lease(text, text, bigint, bigint); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outcrop_acquire_lease(thread text, new_owner text, ttl bigint, expected_end bigint, OUT verdict text, OUT holder text, OUT token bigint, OUT expires bigint) RETURNS record
    LANGUAGE plpgsql
    AS $$
DECLARE
    present TIMESTAMPTZ;
    lease RECORD;
BEGIN
    PERFORM outcrop_lock_threads(ARRAY[thread]);
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


--
-- Name: outcrop_add_notes(text, bigint, text, bigint, text[], text[], text[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outcrop_add_notes(thread text, place bigint, created text, lease_token bigint, kinds text[], paths text[], texts text[]) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: outcrop_append(text, text, text, text, text, jsonb, jsonb, text, text, jsonb, jsonb, jsonb, text, text, text, bigint, bigint, boolean, bigint, text, text[], bytea[], boolean); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outcrop_append(thread text, schema_version text, status text, suspended_node text, next_node text, frozen_state jsonb, metadata jsonb, created_at text, resumed_at text, nested jsonb, decision jsonb, wait jsonb, wake_at text, graph_id text, graph_version text, expected_end bigint, lease_token bigint, release boolean, base_sequence bigint, base_token text, blob_hashes text[], blob_contents bytea[], locked boolean) RETURNS bigint
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: outcrop_lock_threads(text[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outcrop_lock_threads(threads text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: outcrop_purge_left_notes(text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outcrop_purge_left_notes(thread text) RETURNS void
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM outcrop_lock_threads(ARRAY[thread]);
    DELETE FROM outcrop_notes AS n
    WHERE n.thread_id = thread AND NOT EXISTS (SELECT FROM checkpoints AS c WHERE c.thread_id = thread);
END;
$$;


--
-- Name: outcrop_purge_thread(text, bigint, text[], text); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outcrop_purge_thread(thread text, picked_sequence bigint, states text[], older_than text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
BEGIN
    PERFORM outcrop_lock_threads(ARRAY[thread]);
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


--
-- Name: outcrop_put_notes(text, bigint, text, text[], text[], text[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outcrop_put_notes(thread text, place bigint, created text, kinds text[], paths text[], texts text[]) RETURNS void
    LANGUAGE sql
    AS $$
    INSERT INTO outcrop_notes (thread_id, sequence, kind, path, created_at, value)
    SELECT thread, place, note.kind, note.path, created, note.value
    FROM unnest(kinds, paths, texts) AS note (kind, path, value)
    ON CONFLICT (thread_id, sequence, kind, path)
    DO UPDATE SET created_at = excluded.created_at, value = excluded.value;
$$;


--
-- Name: outcrop_save(text[], text[], text[], text[], text[], jsonb[], jsonb[], text[], text[], jsonb[], jsonb[], jsonb[], text[], text[], text[], bigint[], bigint[], boolean[], bigint[], text[], integer[], text[], bytea[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outcrop_save(threads text[], schema_versions text[], statuses text[], suspended_nodes text[], next_nodes text[], states jsonb[], metadata_objects jsonb[], created text[], resumed text[], nested_rows jsonb[], decisions jsonb[], waits jsonb[], wakes text[], graph_ids text[], graph_versions text[], expected_ends bigint[], lease_tokens bigint[], releases boolean[], base_sequences bigint[], base_tokens text[], blob_rows integer[], blob_hashes text[], blob_contents bytea[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: outcrop_save_noted(text[], text[], text[], text[], text[], jsonb[], jsonb[], text[], text[], jsonb[], jsonb[], jsonb[], text[], text[], text[], bigint[], bigint[], boolean[], bigint[], text[], integer[], text[], bytea[], integer[], text[], text[], text[]); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.outcrop_save_noted(threads text[], schema_versions text[], statuses text[], suspended_nodes text[], next_nodes text[], states jsonb[], metadata_objects jsonb[], created text[], resumed text[], nested_rows jsonb[], decisions jsonb[], waits jsonb[], wakes text[], graph_ids text[], graph_versions text[], expected_ends bigint[], lease_tokens bigint[], releases boolean[], base_sequences bigint[], base_tokens text[], blob_rows integer[], blob_hashes text[], blob_contents bytea[], note_rows integer[], note_kinds text[], note_paths text[], note_values text[]) RETURNS bigint[]
    LANGUAGE plpgsql
    AS $$
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


--
-- Name: strata_checkpoints_head(); Type: FUNCTION; Schema: public; Owner: -
--

CREATE FUNCTION public.strata_checkpoints_head() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
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


SET default_tablespace = '';

SET default_table_access_method = heap;

--
-- Name: checkpoint_blobs; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.checkpoint_blobs (
    thread_id text NOT NULL,
    hash text NOT NULL,
    content bytea NOT NULL
);


--
-- Name: checkpoint_leases; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.checkpoint_leases (
    thread_id text NOT NULL,
    owner text,
    token bigint NOT NULL,
    expires_at timestamp with time zone
);


--
-- Name: checkpoint_threads; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.checkpoint_threads (
    thread_id text NOT NULL COLLATE pg_catalog."C",
    sequence bigint NOT NULL,
    state text NOT NULL,
    updated_at text NOT NULL COLLATE pg_catalog."C",
    metadata jsonb,
    wake_at text COLLATE pg_catalog."C",
    graph_id text,
    graph_version text
);


--
-- Name: checkpoints; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.checkpoints (
    thread_id text NOT NULL,
    sequence bigint NOT NULL,
    schema_version text NOT NULL,
    status text NOT NULL,
    suspended_node text,
    next_node text,
    frozen_state jsonb NOT NULL,
    metadata jsonb,
    created_at text NOT NULL,
    resumed_at text,
    nested jsonb,
    decision jsonb,
    wait jsonb,
    wake_at text,
    graph_id text,
    graph_version text
);


--
-- Name: outcrop_notes; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.outcrop_notes (
    thread_id text NOT NULL,
    sequence bigint NOT NULL,
    kind text NOT NULL,
    path text NOT NULL,
    created_at text NOT NULL,
    value text NOT NULL
);


--
-- Name: strata_schema_version; Type: TABLE; Schema: public; Owner: -
--

CREATE TABLE public.strata_schema_version (
    component text NOT NULL,
    version bigint NOT NULL
);


--
-- Data for Name: checkpoint_blobs; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: checkpoint_leases; Type: TABLE DATA; Schema: public; Owner: -
--



--
-- Data for Name: checkpoint_threads; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.checkpoint_threads VALUES ('order-1', 4, 'interrupted', '2026-12-01T13:21:18Z', '{"strata.hops": "1"}', NULL, 'golden', '1');


--
-- Data for Name: checkpoints; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.checkpoints VALUES ('order-1', 0, '1.7.0', 'running', NULL, 'checks', '{}', '{"strata.hops": "0"}', '2026-12-01T13:21:18Z', NULL, NULL, NULL, NULL, NULL, 'golden', '1');
INSERT INTO public.checkpoints VALUES ('order-1', 1, '1.6.0', 'interrupted', 'checks', 'checks', '{}', '{"strata.hops": "0"}', '2026-12-01T13:21:18Z', NULL, NULL, NULL, NULL, NULL, 'golden', '1');
INSERT INTO public.checkpoints VALUES ('order-1', 2, '1.7.0', 'running', 'checks', 'checks', '{}', '{"strata.hops": "0"}', '2026-12-01T13:21:18Z', NULL, NULL, '{"boundary": "checks", "reviewer": "", "overrides": {}, "decided_at": "2026-12-01T13:21:18Z", "is_approved": true}', NULL, NULL, 'golden', '1');
INSERT INTO public.checkpoints VALUES ('order-1', 3, '1.6.0', 'interrupted', 'checks', 'checks', '{}', '{"strata.hops": "0"}', '2026-12-01T13:21:18Z', NULL, NULL, '{"boundary": "checks", "reviewer": "", "overrides": {}, "decided_at": "2026-12-01T13:21:18Z", "is_approved": true}', NULL, NULL, 'golden', '1');
INSERT INTO public.checkpoints VALUES ('order-1', 4, '1.6.0', 'interrupted', 'checks', 'checks', '{}', '{"strata.hops": "1"}', '2026-12-01T13:21:18Z', NULL, NULL, '{"boundary": "checks", "reviewer": "", "overrides": {}, "decided_at": "2026-12-01T13:21:18Z", "is_approved": true}', NULL, NULL, 'golden', '1');


--
-- Data for Name: outcrop_notes; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.outcrop_notes VALUES ('order-1', 0, 'finished', 'checks/score', '2026-12-01T13:21:18Z', '{"score":7}');
INSERT INTO public.outcrop_notes VALUES ('order-1', 1, 'finished', 'checks/score', '2026-12-01T13:21:18Z', '{"score":7}');
INSERT INTO public.outcrop_notes VALUES ('order-1', 1, 'question', 'checks/review', '2026-12-01T13:21:18Z', '[{"id":"first","position":0,"payload":{"is":"it é?"}}]');
INSERT INTO public.outcrop_notes VALUES ('order-1', 2, 'finished', 'checks/score', '2026-12-01T13:21:18Z', '{"score":7}');
INSERT INTO public.outcrop_notes VALUES ('order-1', 2, 'answer', 'checks/review', '2026-12-01T13:21:18Z', '[{"id":"first","value":{"yes":true}}]');
INSERT INTO public.outcrop_notes VALUES ('order-1', 3, 'finished', 'checks/score', '2026-12-01T13:21:18Z', '{"score":7}');
INSERT INTO public.outcrop_notes VALUES ('order-1', 3, 'answer', 'checks/review', '2026-12-01T13:21:18Z', '[{"id":"first","value":{"yes":true}}]');
INSERT INTO public.outcrop_notes VALUES ('order-1', 3, 'question', 'checks/review', '2026-12-01T13:21:18Z', '[{"id":"second","position":1,"payload":null}]');
INSERT INTO public.outcrop_notes VALUES ('order-1', 4, 'answer', 'checks/review', '2026-12-01T13:21:18Z', '[{"id":"first","value":{"yes":true}}]');
INSERT INTO public.outcrop_notes VALUES ('order-1', 4, 'finished', 'checks/score', '2026-12-01T13:21:18Z', '{"score":7}');
INSERT INTO public.outcrop_notes VALUES ('order-1', 4, 'question', 'checks/review', '2026-12-01T13:21:18Z', '[{"id":"second","position":1,"payload":null}]');
INSERT INTO public.outcrop_notes VALUES ('order-1', 4, 'parent', '', '2026-12-01T13:21:18Z', '{"sequence":3}');


--
-- Data for Name: strata_schema_version; Type: TABLE DATA; Schema: public; Owner: -
--

INSERT INTO public.strata_schema_version VALUES ('checkpoints', 2);
INSERT INTO public.strata_schema_version VALUES ('outcrop', 2);


--
-- Name: checkpoint_blobs checkpoint_blobs_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.checkpoint_blobs
    ADD CONSTRAINT checkpoint_blobs_pkey PRIMARY KEY (thread_id, hash);


--
-- Name: checkpoint_leases checkpoint_leases_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.checkpoint_leases
    ADD CONSTRAINT checkpoint_leases_pkey PRIMARY KEY (thread_id);


--
-- Name: checkpoint_threads checkpoint_threads_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.checkpoint_threads
    ADD CONSTRAINT checkpoint_threads_pkey PRIMARY KEY (thread_id);


--
-- Name: checkpoints checkpoints_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (thread_id, sequence);


--
-- Name: outcrop_notes outcrop_notes_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.outcrop_notes
    ADD CONSTRAINT outcrop_notes_pkey PRIMARY KEY (thread_id, sequence, kind, path);


--
-- Name: strata_schema_version strata_schema_version_pkey; Type: CONSTRAINT; Schema: public; Owner: -
--

ALTER TABLE ONLY public.strata_schema_version
    ADD CONSTRAINT strata_schema_version_pkey PRIMARY KEY (component);


--
-- Name: checkpoint_threads_by_graph; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX checkpoint_threads_by_graph ON public.checkpoint_threads USING btree (graph_id, updated_at, thread_id);


--
-- Name: checkpoint_threads_by_metadata; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX checkpoint_threads_by_metadata ON public.checkpoint_threads USING gin (metadata jsonb_path_ops);


--
-- Name: checkpoint_threads_by_state; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX checkpoint_threads_by_state ON public.checkpoint_threads USING btree (state, updated_at, thread_id);


--
-- Name: checkpoint_threads_by_updated; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX checkpoint_threads_by_updated ON public.checkpoint_threads USING btree (updated_at, thread_id);


--
-- Name: checkpoint_threads_by_wake; Type: INDEX; Schema: public; Owner: -
--

CREATE INDEX checkpoint_threads_by_wake ON public.checkpoint_threads USING btree (wake_at);


--
-- Name: checkpoints checkpoints_head; Type: TRIGGER; Schema: public; Owner: -
--

CREATE TRIGGER checkpoints_head AFTER INSERT ON public.checkpoints FOR EACH ROW EXECUTE FUNCTION public.strata_checkpoints_head();


--
-- PostgreSQL database dump complete
--


