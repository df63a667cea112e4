"""Appending rows to the file: one statement a row, and a transaction around what belongs together.

Runs on the connection's thread. The conditions of a save are inside its statement, so that
they hold under the file's lock; why a row was refused is found out after.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING

from outcrop.stores.columns import to_parameters
from outcrop.stores.encoded_saves import BaseMoved
from outcrop.stores.port import LeaseLost, NotLatest, Saved

from .database import transaction
from .leases import SQL, end_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outcrop.stores.encoded_saves import Answer
    from outcrop.stores.encoding import Stored
    from outcrop.stores.save import Save


@dataclass(frozen=True, slots=True)
class Append:
    """A save in its stored form, as the statements take it."""

    parameters: Mapping[str, str | int | None]
    blobs: Mapping[str, bytes]
    release: bool


def append_of(save: Save, stored: Stored) -> Append:
    """The statement's parameters; raises `InvalidRequest`."""
    base = stored.base
    parameters = {
        **to_parameters(stored.checkpoint),
        "expected": save.expected,
        "token": save.token,
        "base": None if base is None else base.sequence,
        "base_token": None if base is None else base.token,
    }
    return Append(parameters, stored.blobs, save.release)


def append_all(connection: sqlite3.Connection, appends: Sequence[Append]) -> list[Answer]:
    """Append in order, all or nothing; a row that its conditions refuse keeps no other back."""
    if len(appends) == 1 and not (appends[0].blobs or appends[0].release):
        return [_append(connection, appends[0])]
    with transaction(connection, "IMMEDIATE"):
        return [_append(connection, append) for append in appends]


def _append(connection: sqlite3.Connection, append: Append) -> Answer:
    parameters = append.parameters
    try:
        saved: list[tuple[int]] = connection.execute(SQL["save"], parameters).fetchall()
    except sqlite3.IntegrityError:
        if parameters["expected"] is None:
            raise
        return NotLatest()  # another row took the place
    if not saved:
        return _refusal(connection, parameters)
    if append.blobs:
        thread_id = parameters["thread_id"]
        connection.executemany(SQL["add_blob"], [(thread_id, *blob) for blob in append.blobs.items()])
    if append.release:
        connection.execute(SQL["release"], parameters).fetchall()
    return Saved(saved[0][0])


def _refusal(connection: sqlite3.Connection, parameters: Mapping[str, str | int | None]) -> Answer:
    token, expected = parameters["token"], parameters["expected"]
    if token is not None:
        latest: tuple[int] | None = connection.execute(SQL["token"], parameters).fetchone()
        if latest is None or latest[0] != token:
            return LeaseLost()
    if expected is not None and end_of(connection, parameters) != expected:
        return NotLatest()
    if parameters["base"] is not None:
        return BaseMoved()
    # Outside a transaction, whoever was in the way may be gone by now.
    return LeaseLost() if expected is None else NotLatest()
