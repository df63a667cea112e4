"""One call of `CheckpointStore.save` as a value, on its way through an adapter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .record import Checkpoint, Lease, Note


@dataclass(frozen=True, slots=True)
class Save:
    """The arguments of the call, checked."""

    checkpoint: Checkpoint
    expected: int | None = None
    lease: Lease | None = None
    release: bool = False
    notes: Sequence[Note] = ()

    @property
    def token(self) -> int | None:
        """The lease token that must be the thread's latest, if any."""
        return None if self.lease is None else self.lease.token
