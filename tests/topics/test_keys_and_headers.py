from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest

from outcrop.topics.headers import command_headers, dead_letter_headers, header, outcome_headers
from outcrop.topics.keys import decode_key, encode_key, is_thread_id
from outcrop.topics.messages import Cancel
from outcrop.topics.names import TopicNames

CANCEL = Cancel(command_id=UUID(int=1), thread_id="t", sent_at=datetime(2026, 1, 2, tzinfo=UTC))


@pytest.mark.parametrize("thread_id", ["t", "order/1 ü 日本", "x" * 256])
def test_thread_id_is_its_key(thread_id: str) -> None:
    assert is_thread_id(thread_id)
    assert decode_key(encode_key(thread_id)) == thread_id


@pytest.mark.parametrize("thread_id", ["", "a\nb", "a\x00", "a\x7f", "a\x85", "x" * 257, "\ud800", 7, None])
def test_what_is_no_thread_id(thread_id: object) -> None:
    assert not is_thread_id(thread_id)


@pytest.mark.parametrize("key", [b"", b"\xff", b"a\n", b"x" * 257])
def test_what_is_no_key(key: bytes) -> None:
    assert decode_key(key) is None


def test_headers_of_commands_and_outcomes() -> None:
    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    assert command_headers(CANCEL) == (("content-type", b"application/json"), ("outcrop-type", b"cancel"))
    assert header(command_headers(CANCEL, parent), "traceparent") == parent.encode()
    assert header(outcome_headers(), "outcrop-type") == b"outcome"
    assert header(outcome_headers(), "traceparent") is None


def test_last_header_of_a_name_counts() -> None:
    assert header((("a", b"1"), ("a", b"2"), ("b", b"3")), "a") == b"2"


def test_dead_letter_keeps_headers_and_adds_why_and_from_where() -> None:
    original = (("traceparent", b"p"), ("outcrop-error", b"an earlier life"), ("x", b"\xff"))
    added = dead_letter_headers(
        original,
        topic="threads.commands",
        partition=3,
        offset=2**40,
        kind="invalid",
        error="state: half a pair \ud800",
        attempts=1,
        failed_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2))),
    )
    assert added == (
        ("traceparent", b"p"),
        ("x", b"\xff"),
        ("outcrop-source-topic", b"threads.commands"),
        ("outcrop-source-partition", b"3"),
        ("outcrop-source-offset", b"1099511627776"),
        ("outcrop-error-kind", b"invalid"),
        ("outcrop-error", b"state: half a pair ?"),
        ("outcrop-attempts", b"1"),
        ("outcrop-failed-at", b"2026-01-02T01:04:05Z"),
    )


def test_default_names() -> None:
    assert TopicNames() == TopicNames(
        "threads.commands", "threads.outcomes", "threads.dead", "threads.events"
    )
