"""Appending rows to the file: one statement a row, and a transaction around what belongs together.

Runs on the connection's thread. The conditions of a save are inside its statement, so that
they hold under the file's lock; why a row was refused is found out after.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from outcrop.stores.columns import to_parameters
from outcrop.stores.encoded_saves import BaseMoved
from outcrop.stores.port import LeaseLost, NotLatest, Saved

from .database import transaction
from .leases import SQL, end_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from outcrop.stores.encoded_saves import Answer
    from outcrop.stores.encoding import Stored
    from outcrop.stores.port import SaveResult
    from outcrop.stores.record import Note, Row
    from outcrop.stores.save import Save


@dataclass(frozen=True, slots=True)
class Append:
    """A save in its stored form, as the statements take it."""

    parameters: Mapping[str, str | int | None]
    blobs: Mapping[str, bytes]
    release: bool
    notes: Sequence[Note] = ()

    @property
    def is_one_statement(self) -> bool:
        """Whether the row's own statement is all there is to it."""
        return not (self.blobs or self.release or self.notes)


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
    return Append(parameters, stored.blobs, save.release, save.notes)


def append_all(connection: sqlite3.Connection, appends: Sequence[Append]) -> list[Answer]:
    """Append in order, all or nothing; a row that its conditions refuse keeps no other back."""
    if len(appends) == 1 and appends[0].is_one_statement:
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
    if append.notes:
        _put(connection, append.parameters, saved[0][0], append.notes)
    return Saved(saved[0][0])


def add_notes(
    connection: sqlite3.Connection, beside: Row, token: int | None, notes: Sequence[Note]
) -> SaveResult:
    """Put notes beside the row if it is the latest one and the token too, in one transaction."""
    checkpoint = beside.checkpoint
    parameters = {"thread_id": checkpoint.thread_id, "created_at": checkpoint.created_at}
    with transaction(connection, "IMMEDIATE"):
        if token is not None and not _is_latest_token(connection, parameters, token):
            return LeaseLost()
        latest = connection.execute(SQL["latest"], parameters).fetchone()
        if latest != (beside.sequence, checkpoint.created_at):
            return NotLatest()
        _put(connection, parameters, beside.sequence, notes)
        return Saved(beside.sequence)


def _put(
    connection: sqlite3.Connection,
    row: Mapping[str, str | int | None],
    sequence: int,
    notes: Sequence[Note],
) -> None:
    place = (row["thread_id"], sequence, row["created_at"])
    values = [(*place, note.kind.value, note.path, note.value) for note in notes]
    connection.executemany(SQL["put_note"], values)


def _is_latest_token(connection: sqlite3.Connection, parameters: Mapping[str, object], token: int) -> bool:
    latest: tuple[int] | None = connection.execute(SQL["token"], parameters).fetchone()
    return latest is not None and latest[0] == token


def _refusal(connection: sqlite3.Connection, parameters: Mapping[str, str | int | None]) -> Answer:
    expected = parameters["expected"]
    token = cast("int | None", parameters["token"])
    if token is not None and not _is_latest_token(connection, parameters, token):
        return LeaseLost()
    if expected is not None and end_of(connection, parameters) != expected:
        return NotLatest()
    if parameters["base"] is not None:
        return BaseMoved()
    # Outside a transaction, whoever was in the way may be gone by now.
    return LeaseLost() if expected is None else NotLatest()
