"""Which rows a graph may take on: those of its own ID and version, or of no graph at all.

IDs and versions compare exactly; there is no order among versions. Knows one level; a caller
that walks several asks for each of them, with `at` saying where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outcrop.stores.record import Checkpoint, GraphIdentity


def identity_refusal(
    own: GraphIdentity | None, level: Checkpoint, *, thread_id: str, at: str = ""
) -> str | None:
    """Why a graph may not take this level on, or None when it may.

    `at` is empty for the outermost level, else like ` at level [Work/Inner]`.
    """
    written = level.graph
    if written is None or written == own:
        return None
    told = f"thread '{thread_id}'{at} was written by graph '{written.id}' {_version(written)}"
    if own is None:
        return f"{told}, and this graph has no identity"
    if own.id != written.id:
        return f"{told}, not '{own.id}' {_version(own)}"
    return f"{told}, not {_version(own)}, and this graph has no migration"


def migration_refusal(
    own: GraphIdentity, written: GraphIdentity, told: str, *, thread_id: str, at: str = ""
) -> str:
    """Why a graph's migration didn't take a level on."""
    return (
        f"thread '{thread_id}'{at} was written by graph '{written.id}' {_version(written)}, "
        f"not {_version(own)}, and this graph's migration {told}"
    )


def _version(identity: GraphIdentity) -> str:
    return "unversioned" if identity.version is None else f"version {identity.version}"
