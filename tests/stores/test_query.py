"""Cursors, as every engine writes them."""

from __future__ import annotations

import pytest

from outcrop.stores import InvalidRequest
from outcrop.stores.query import decode_cursor, encode_cursor


def test_the_cursor_is_the_peers() -> None:
    cursor = "WyIyMDI2LTExLTMwVDIxOjQ3OjUyWiIsIm9yZGVyLTEwMDIiXQ"
    assert encode_cursor("2026-11-30T21:47:52Z", "order-1002") == cursor
    assert decode_cursor(cursor) == ("2026-11-30T21:47:52Z", "order-1002")


@pytest.mark.parametrize("thread_id", ["", "a", "é", "日本語", 'a"b', "🚀" * 30, "?>~"])
def test_any_thread_id_survives(thread_id: str) -> None:
    assert decode_cursor(encode_cursor("2026", thread_id)) == ("2026", thread_id)


@pytest.mark.parametrize(
    "cursor", ["", "=", "W10", "WyJhIl0", "WzEsMl0", "bm90", "WyJhIiwiYiIsImMiXQ", "a b", "é"]
)
def test_what_is_no_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        decode_cursor(cursor)
    assert str(refusal.value) == f"'{cursor}' is not a thread listing cursor"
