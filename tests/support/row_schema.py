"""Every row that a run saves in a test, held against the published schema of rows."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import orjson

from outcrop.engine.commit import Journal
from outcrop.stores import codec

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from outcrop.stores.port import SaveResult
    from outcrop.stores.record import Checkpoint, Note

_SCHEMA = Path(__file__).parents[2] / "schema" / "checkpoint.schema.json"
_VALIDATOR = jsonschema_rs.validator_for(orjson.loads(_SCHEMA.read_bytes()))


def watch_rows(patch: pytest.MonkeyPatch) -> list[str]:
    """From now on, what is wrong with saved rows comes into the list; nothing else changes."""
    wrong = list[str]()
    save: Any = Journal._save

    async def checked(
        journal: Journal, row: Checkpoint, notes: Sequence[Note], *, release: bool
    ) -> SaveResult:
        wrong.extend(
            f"{row.thread_id}: {error.message} at {list(error.instance_path)}"
            for error in _VALIDATOR.iter_errors(orjson.loads(codec.encode(row)))
        )
        result: SaveResult = await save(journal, row, notes, release=release)
        return result

    patch.setattr(Journal, "_save", checked)
    return wrong
