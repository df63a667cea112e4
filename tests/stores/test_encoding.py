"""The stored forms that an encoder chooses, and that they read back as what was saved (J, K)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.stores import Checkpoint, InvalidRequest, Row, Status
from outcrop.stores.codec import same_as
from outcrop.stores.contract import SHAPES, sample
from outcrop.stores.deltas import fill, unfold
from outcrop.stores.encoding import Base, Encoder, Stored
from outcrop.stores.options import DeltaOptions, OffloadOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

EVIDENCE = "e" * 80
HASH = "sha256:7a7286c2cfbeba242bc85e9a333acd6b79ace59b72108849a6299788bacc257b"


def running(state: Any, thread_id: str = "t", **changes: Any) -> Checkpoint:
    text = json.dumps(state, ensure_ascii=False)
    return sample(thread_id, Status.RUNNING, schema_version="1.7.0", frozen_state=text, **changes)


def state_of(stored: Stored) -> Any:
    return json.loads(stored.checkpoint.frozen_state)


class Log:
    """Rows of one thread as an encoder has them stored, and what a reader makes of them."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self.rows: list[Row] = []
        self.blobs: dict[str, bytes] = {}

    def save(self, checkpoint: Checkpoint, *, alone: bool = True) -> Stored:
        stored = self.encoder.draft(checkpoint, alone=alone)
        return self.append(checkpoint, stored)

    def append(self, checkpoint: Checkpoint, stored: Stored) -> Stored:
        if stored.base is not None:
            assert stored.base == Base(len(self.rows) - 1, self.rows[-1].checkpoint.created_at)
        self.encoder.saved(checkpoint, stored, len(self.rows), checkpoint.created_at)
        self.rows.append(Row(len(self.rows), stored.checkpoint))
        self.blobs.update(stored.blobs)
        return stored

    def read(self) -> list[Checkpoint]:
        return [fill(entry, self.blobs).checkpoint for entry in unfold(self.rows)]

    def load_into(self, encoder: Encoder) -> None:
        encoder.loaded(unfold(self.rows)[-1], self.rows[-1].checkpoint.created_at)

    @property
    def versions(self) -> list[str]:
        return [row.checkpoint.schema_version for row in self.rows]


def test_without_options_rows_go_through_as_they_are() -> None:
    encoder = Encoder()
    checkpoint = sample(frozen_state="not even JSON")
    assert encoder.draft(checkpoint) == encoder.whole(checkpoint) == Stored(checkpoint)
    assert not encoder.active


def test_every_few_rows_are_whole() -> None:
    """J2: full_every 4, and a row that isn't running; the next one is a delta of it."""
    log = Log(Encoder(DeltaOptions(full_every=4)))
    rows = [running({"n": n, "kept": "x"}) for n in range(13)]
    rows[10] = replace(rows[10], status=Status.COMPLETED, schema_version="1.0.0")
    for row in rows:
        log.save(row)
    minors = [version.split(".")[1] for version in log.versions]
    assert minors == ["7", "8", "8", "8", "7", "8", "8", "8", "7", "8", "0", "8", "8"]
    stored = json.loads(log.rows[1].checkpoint.frozen_state)
    assert stored == {
        "checkpoint_version": "1.7.0",
        "delta_of": 0,
        "depth": 1,
        "set": {"n": 1},
        "unset": [],
    }
    assert list(stored) == sorted(stored)
    assert all(map(same_as, log.read(), rows))


def test_removed_keys_are_sorted() -> None:
    log = Log(Encoder(DeltaOptions()))
    log.save(running({"b": 1, "a": 2, "é": 3, "kept": 4}))
    assert state_of(log.save(running({"kept": 4})))["unset"] == ["a", "b", "é"]


def test_values_are_compared_whatever_their_key_order() -> None:
    """J9; true is not 1, and 1 is not 1.0."""
    log = Log(Encoder(DeltaOptions()))
    log.save(running({"v": {"a": [{"x": 1, "y": 2}], "b": 1}, "flag": True, "n": 1}))
    again = log.save(running({"n": 1.0, "flag": 1, "v": {"b": 1, "a": [{"y": 2, "x": 1}]}}))
    assert state_of(again)["set"] == {"n": 1.0, "flag": 1}
    assert isinstance(state_of(again)["set"]["n"], float)


def test_nested_levels_are_encoded_on_their_own() -> None:
    """J5: a new level is whole, a changed one a delta, and a vanished one leaves nothing."""
    log = Log(Encoder(DeltaOptions()))

    def child(state: Any, thread_id: str = "Work") -> Checkpoint:
        return sample(thread_id, frozen_state=json.dumps(state), metadata={"level": "1"})

    rows = [
        running({"root": 0}),
        running({"root": 0}, nested=child({"n": 1, "m": 2})),
        running({"root": 1}, nested=child({"n": 1, "m": 3})),
        running({"root": 1}, nested=child([1, 2])),
        running({"root": 1}),
    ]
    stored = [log.save(row).checkpoint for row in rows]
    levels = [[json.loads(level.frozen_state) for level in row.levels()][1:] for row in stored]
    assert levels == [
        [],
        [{"state": {"n": 1, "m": 2}}],
        [{"set": {"m": 3}, "unset": []}],
        [{"state": [1, 2]}],
        [],
    ]
    assert [row.innermost.schema_version for row in stored[1:4]] == ["1.0.0"] * 3
    assert all(map(same_as, log.read(), rows))


def test_states_that_are_no_objects_stay_plain() -> None:
    log = Log(Encoder(DeltaOptions(), OffloadOptions(threshold=1)))
    rows = [running(state) for state in (5, [1], 5, {"n": 1}, "text", None)]
    for row in rows:
        log.save(row)
    assert log.versions == ["1.7.0", "1.7.0", "1.7.0", "1.9.0", "1.7.0", "1.7.0"]
    assert all(map(same_as, log.read(), rows))


def test_a_cold_cache_and_a_load() -> None:
    """J4: a thread that isn't remembered gets a whole row; a load remembers it."""
    options = DeltaOptions(full_every=3)
    log = Log(Encoder(options))
    log.save(running({"n": 1}))
    log.save(running({"n": 2}))
    cold = Encoder(options)
    assert cold.draft(running({"n": 3})).base is None
    log.load_into(cold)
    log.encoder = cold
    assert state_of(log.save(running({"n": 3, "m": 1})))["depth"] == 2
    assert log.save(running({"n": 4})).base is None  # the chain's depth was remembered as well
    assert log.versions == ["1.7.0", "1.8.0", "1.8.0", "1.7.0"]


def test_the_least_recently_used_thread_is_forgotten() -> None:
    """J4, J9."""
    encoder = Encoder(DeltaOptions(cached_threads=2))
    logs = {name: Log(encoder) for name in ("a", "b", "c")}
    for name in ("a", "b", "a", "c"):  # b was used longest ago when c comes
        logs[name].save(running({"n": len(logs[name].rows)}, name))
    bases = {name: encoder.draft(running({"n": 9}, name)).base is not None for name in ("a", "b", "c")}
    assert bases == {"a": True, "b": False, "c": True}


def test_offload_alone_remembers_as_many_threads_as_deltas_do() -> None:
    encoder = Encoder(None, OffloadOptions(threshold=1))
    for number in range(DeltaOptions().cached_threads + 1):
        row = running({"n": 1}, f"t{number}")
        encoder.saved(row, encoder.draft(row), 0, row.created_at)
    assert encoder.draft(running({"n": 1}, "t0")).base is None
    assert encoder.draft(running({"n": 1}, "t1")).base is not None


def test_an_older_load_replaces_nothing() -> None:
    """J9: a load that a save overtook."""
    log = Log(Encoder(DeltaOptions()))
    log.save(running({"n": 1}))
    early = unfold(log.rows)[-1]
    log.save(running({"n": 2}))
    log.encoder.loaded(early, early.row.checkpoint.created_at)
    assert state_of(log.save(running({"n": 3})))["delta_of"] == 1


def test_a_forgotten_thread_gets_a_whole_row() -> None:
    """J3, J6: after a refusal or a doubt."""
    log = Log(Encoder(DeltaOptions()))
    log.save(running({"n": 1}))
    log.encoder.forget("t")
    log.encoder.forget("unknown")
    assert log.save(running({"n": 2})).base is None
    assert log.save(running({"n": 3})).base == Base(1, log.rows[1].checkpoint.created_at)


def test_two_saves_of_a_thread_in_a_transaction_are_whole() -> None:
    """J7: and the next is a delta of the second."""
    log = Log(Encoder(DeltaOptions(), OffloadOptions(threshold=50)))
    log.save(running({"n": 0, "evidence": EVIDENCE}))
    rows = [running({"n": n, "evidence": EVIDENCE}) for n in (1, 2)]
    other = running({"n": 0}, "other")
    drafts = log.encoder.drafts([rows[0], other, rows[1]])
    for row, stored in zip(rows, (drafts[0], drafts[2]), strict=True):
        assert stored.base is None
        assert list(stored.blobs) == [HASH]
        log.append(row, stored)
    assert state_of(log.save(running({"n": 3, "evidence": EVIDENCE})))["delta_of"] == 2


def test_a_value_is_written_once() -> None:
    """K2: versions 1.9 1.8 1.8 1.9 1.9 1.8, and a changed value is a second blob."""
    log = Log(Encoder(DeltaOptions(), OffloadOptions(threshold=64)))
    other = "f" * 80
    rows = [
        running({"evidence": EVIDENCE, "n": 0}),
        running({"evidence": EVIDENCE, "n": 1}),
        running({"evidence": EVIDENCE, "n": 2}),
        replace(running({"evidence": EVIDENCE, "n": 2}), status=Status.INTERRUPTED, schema_version="1.0.0"),
        running({"evidence": other, "n": 2}),
        running({"evidence": other, "n": 3}),
    ]
    written = [list(log.save(row).blobs) for row in rows]
    assert log.versions == ["1.9.0", "1.8.0", "1.8.0", "1.9.0", "1.9.0", "1.8.0"]
    assert [len(names) for names in written] == [1, 0, 0, 0, 1, 0]
    assert log.blobs[HASH] == json.dumps(EVIDENCE).encode()
    first = json.loads(log.rows[0].checkpoint.frozen_state)
    assert first == {
        "blobs": {"evidence": {"bytes": 82, "hash": HASH}},
        "checkpoint_version": "1.7.0",
        "delta_of": None,
        "depth": 0,
        "state": {"n": 0},
    }
    assert json.loads(log.rows[3].checkpoint.frozen_state)["blobs"] == first["blobs"]
    assert all(map(same_as, log.read(), rows))


def test_a_row_that_leaves_a_blob_out_relies_on_its_base() -> None:
    """K6: with offload alone; the whole form brings the blob again."""
    log = Log(Encoder(None, OffloadOptions(threshold=64)))
    row = running({"evidence": EVIDENCE})
    assert log.save(row).base is None
    again = log.save(row)
    assert (again.base, again.blobs) == (Base(0, row.created_at), {})
    assert state_of(again)["delta_of"] is None
    whole = log.encoder.whole(row)
    assert (whole.base, list(whole.blobs)) == (None, [HASH])
    assert log.save(running({"evidence": "short"})).base is None
    assert list(log.save(row).blobs) == [HASH]  # only the latest row's blobs are remembered


def test_a_load_remembers_blobs() -> None:
    options = OffloadOptions(threshold=64)
    for deltas in (None, DeltaOptions()):
        log = Log(Encoder(deltas, options))
        log.save(running({"evidence": EVIDENCE, "n": 1}))
        cold = Encoder(deltas, options)
        log.load_into(cold)
        stored = cold.draft(running({"evidence": EVIDENCE, "n": 2}))
        assert stored.blobs == {}
        assert stored.base is not None


def test_the_threshold_is_in_bytes_of_canonical_json() -> None:
    log = Log(Encoder(None, OffloadOptions(threshold=10)))
    stored = log.save(running({"under": "1234567", "at": "12345678", "é": "ééééé", "o": {"b": 12, "a": 3}}))
    envelope = state_of(stored)
    assert envelope["state"] == {"under": "1234567"}
    assert {key: entry["bytes"] for key, entry in envelope["blobs"].items()} == {"at": 10, "é": 12, "o": 14}
    assert b'{"a":3,"b":12}' in stored.blobs.values()


def test_a_blob_is_known_under_another_key_as_well() -> None:
    log = Log(Encoder(DeltaOptions(), OffloadOptions(threshold=64)))
    log.save(running({"evidence": EVIDENCE}))
    moved = log.save(running({"renamed": EVIDENCE, "twice": EVIDENCE}))
    assert moved.blobs == {}
    assert same_as(log.read()[1], running({"renamed": EVIDENCE, "twice": EVIDENCE}))


@pytest.mark.parametrize("text", ["{", '{"a":NaN}', "", '{"a":"\\ud800"}'])
def test_a_state_that_is_no_json_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^the state of thread 't' isn't JSON: ") as refusal:
        Encoder(DeltaOptions()).draft(sample(frozen_state=text))
    assert refusal.value.__cause__ is None


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("threshold", [None, 1, 64])
@pytest.mark.parametrize("deltas", [None, DeltaOptions(full_every=3)])
def test_every_shape_reads_back(name: str, threshold: int | None, deltas: DeltaOptions | None) -> None:
    offload = None if threshold is None else OffloadOptions(threshold=threshold)
    log = Log(Encoder(deltas, offload))
    rows = [SHAPES[name], running({"n": 1}), SHAPES[name], SHAPES["nested wait"], SHAPES[name]]
    for row in rows:
        log.save(row)
    assert all(map(same_as, log.read(), rows))
    assert [row.schema_version for row in log.read()] == [row.schema_version for row in rows]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
).filter(lambda value: "Infinity" not in json.dumps(value))
STATES = st.dictionaries(st.sampled_from(["a", "b", "é", ""]), VALUES) | VALUES


@settings(max_examples=100, deadline=None)
@given(states=st.lists(st.tuples(STATES, STATES | st.none(), st.sampled_from(list(Status))), max_size=8))
def test_any_log_reads_back(states: list[tuple[Any, Any, Status]]) -> None:
    log = Log(Encoder(DeltaOptions(full_every=3), OffloadOptions(threshold=12)))
    rows: list[Checkpoint] = []
    for state, inner, status in states:
        nested = None if inner is None else sample("Work", frozen_state=json.dumps(inner))
        rows.append(replace(running(state), status=status, nested=nested))
    for row in rows:
        log.save(row)
    assert all(map(same_as, log.read(), rows))
    cold: Mapping[str, bytes] = log.blobs
    for end in range(1, len(rows) + 1):  # a reader that starts at any row has what it builds on
        depth = unfold(log.rows[:end])[-1].depth
        entry = unfold(log.rows[end - 1 - depth : end])[-1]
        assert same_as(fill(entry, cold).checkpoint, rows[end - 1])
