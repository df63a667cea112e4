"""Metadata, identity, keys and delays, each on its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from outcrop.engine import Backoff, Fatal, Graph, Jitter, Retry, Transient
from outcrop.engine.idempotency import idempotency_key
from outcrop.engine.identity import identity_refusal
from outcrop.engine.metadata import (
    caller_metadata,
    carried_marks,
    carried_metadata,
    hops_of,
    hops_refusal,
    metadata_refusal,
    recoveries_of,
)
from outcrop.stores.record import Checkpoint, GraphIdentity, Status

ROW = Checkpoint(
    schema_version="1.7.0",
    thread_id="t",
    status=Status.RUNNING,
    suspended_node="a",
    next_node="b",
    frozen_state="{}",
    metadata=None,
    created_at="2026-01-02T03:04:05Z",
)


def row_with(**metadata: str) -> Checkpoint:
    return replace(ROW, metadata={key.replace("__", "."): value for key, value in metadata.items()})


# --- metadata


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        ({}, None),
        ({"tenant": "acme"}, None),
        ({"": "x", "error": "y"}, "run metadata keys can't be empty"),
        ({"error": "x"}, "run metadata key 'error' is reserved"),
        ({"error_kind": "x"}, "run metadata key 'error_kind' is reserved"),
        ({"attempts": "1"}, "run metadata key 'attempts' is reserved"),
        ({"cancel_reason": "x"}, "run metadata key 'cancel_reason' is reserved"),
        ({"strata.anything": "x"}, "run metadata key 'strata.anything' is reserved"),
        ({"outcrop.command_id": "x"}, "run metadata key 'outcrop.command_id' is reserved"),
        ({"b": "", "strata.b": "", "strata.a": ""}, "run metadata key 'strata.a' is reserved"),
        ({"strata": "x", "errors": "y", "outcrop": "z"}, None),
    ],
)
def test_caller_s_keys(metadata: dict[str, str], message: str | None) -> None:
    """M003: keys are judged in order."""
    assert metadata_refusal(metadata) == message


def test_metadata_values_are_text() -> None:
    """Rows hold nothing else, and a row that can't be read back would strand its thread."""
    untyped: Any = {"tries": 3}
    assert metadata_refusal(untyped) == "run metadata value of 'tries' must be text"


def test_thread_carries_the_caller_s_keys_only() -> None:
    """M004: the call's keys are laid over them one by one."""
    row = row_with(
        tenant="acme",
        region="eu",
        error="no",
        error_kind="fatal",
        attempts="2",
        cancel_reason="requested",
        strata__hops="4",
        outcrop__command_id="c1",
    )
    assert caller_metadata(row) == {"tenant": "acme", "region": "eu"}
    assert carried_metadata(row, {"region": "us", "batch": "7"}) == {
        "tenant": "acme",
        "region": "us",
        "batch": "7",
    }


def test_row_without_metadata_says_null() -> None:
    """M002."""
    assert caller_metadata(ROW) == {}


def test_recovery_keeps_whose_work_it_is() -> None:
    """worker.md 5: the command and its message; no other mark of the old row."""
    row = row_with(outcrop__command_id="c1", outcrop__message="T/0/7", outcrop__token="3", tenant="acme")  # noqa: S106 - a lease's token is no secret
    assert carried_marks(row) == {"outcrop.command_id": "c1", "outcrop.message": "T/0/7"}
    assert carried_marks(ROW) == {}


@pytest.mark.parametrize(("value", "hops"), [("0", 0), ("12", 12), ("007", 7), (str(2**64 - 1), 2**64 - 1)])
def test_hops(value: str, hops: int) -> None:
    row = row_with(strata__hops=value)
    assert hops_of(row) == hops
    assert hops_refusal(row, thread_id="t") is None


@pytest.mark.parametrize("value", ["", "-1", "+1", "1.0", "four", "٣", " 1", str(2**64), "9" * 5000])
def test_malformed_hops(value: str) -> None:
    """K010's message (the limit itself comes later)."""
    row = row_with(strata__hops=value)
    assert hops_refusal(row, thread_id="t", at=" at level [Work]") == (
        f"checkpoint for thread 't' at level [Work] has an invalid 'strata.hops' value '{value}'"
    )


def test_row_without_hops_has_made_none() -> None:
    assert hops_of(ROW) == 0
    assert hops_refusal(ROW, thread_id="t") is None


@pytest.mark.parametrize(
    ("row", "count"), [(ROW, 0), (row_with(strata__recoveries="3"), 3), (row_with(strata__recoveries="x"), 0)]
)
def test_recoveries(row: Checkpoint, count: int) -> None:
    """I028 for single rows; unreadable counts as none."""
    assert recoveries_of(row) == count


# --- identity

ORDERS_1 = GraphIdentity("orders", "1")
ORDERS_2 = GraphIdentity("orders", "2")
ORDERS = GraphIdentity("orders")
REFUNDS = GraphIdentity("refunds", "1")


@pytest.mark.parametrize(
    ("written", "own", "message"),
    [
        (None, None, None),
        (None, ORDERS_1, None),
        (ORDERS_1, ORDERS_1, None),
        (ORDERS, ORDERS, None),
        (ORDERS_1, None, "written by graph 'orders' version 1, and this graph has no identity"),
        (ORDERS, None, "written by graph 'orders' unversioned, and this graph has no identity"),
        (ORDERS_1, REFUNDS, "written by graph 'orders' version 1, not 'refunds' version 1"),
        (REFUNDS, ORDERS, "written by graph 'refunds' version 1, not 'orders' unversioned"),
        (
            ORDERS_1,
            ORDERS_2,
            "written by graph 'orders' version 1, not version 2, and this graph has no migration",
        ),
        (
            ORDERS_1,
            ORDERS,
            "written by graph 'orders' version 1, not unversioned, and this graph has no migration",
        ),
    ],
)
def test_adoption(written: GraphIdentity | None, own: GraphIdentity | None, message: str | None) -> None:
    """L005, L011, L012 (without migration): refusal and ownership agree."""
    row = replace(ROW, graph=written)
    expected = None if message is None else f"thread 't' at level [Work] was {message}"
    assert identity_refusal(own, row, thread_id="t", at=" at level [Work]") == expected

    graph = Graph(dict, id=own.id, version=own.version) if own else Graph(dict)
    graph.node(name="a")(lambda _state: None)
    assert graph.compile().owns(row) is (message is None)


# --- idempotency keys


def test_keys() -> None:
    """I001, I002, T003: durable keys name the visit, others the run too."""
    assert idempotency_key("t", "B", [2], run_id=None) == "t/B#2"
    assert idempotency_key("t", "B", [2], run_id="run-1") == "t/B#2@run-1"
    assert idempotency_key("t", "Work/Stage/Q", [1, 1, 2], run_id=None) == "t/Work/Stage/Q#1.1.2"


# --- delays


def test_no_backoff_means_at_once() -> None:
    """C010: hints are ignored too."""
    assert Retry(max_retries=2).delay(1, 5.0, lambda: 1.0) == 0.0


def test_delays_double_up_to_max() -> None:
    """C011."""
    policy = Retry(backoff=Backoff(initial=1.0, max=5.0, jitter=Jitter.NONE))
    assert [policy.delay(retry, None, lambda: 0.5) for retry in range(1, 6)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert policy.delay(5000, None, lambda: 0.5) == 5.0


@pytest.mark.parametrize(
    ("jitter", "drawn", "delay"),
    [(Jitter.FULL, 0.0, 0.0), (Jitter.FULL, 0.75, 3.0), (Jitter.EQUAL, 0.0, 2.0), (Jitter.EQUAL, 0.5, 3.0)],
)
def test_jitter(jitter: Jitter, drawn: float, delay: float) -> None:
    """C012: over [0, d], or over [d/2, d]."""
    policy = Retry(backoff=Backoff(initial=4.0, max=10.0, jitter=jitter))
    assert policy.delay(1, None, lambda: drawn) == delay


def test_hint_replaces_the_delay_up_to_max() -> None:
    """C013."""
    policy = Retry(backoff=Backoff(initial=1.0, max=5.0))
    assert policy.delay(1, 3.0, lambda: 0.1) == 3.0
    assert policy.delay(1, 60.0, lambda: 0.1) == 5.0


def test_fatal_failures() -> None:
    """C003 and what gives up on its own account."""
    policy = Retry(max_retries=5, give_up_on=(KeyError,))
    assert policy.is_fatal(Fatal("no"))
    assert policy.is_fatal(KeyError("gone"))
    assert not policy.is_fatal(Transient("again"))
    assert not policy.is_fatal(ValueError("anything else"))
