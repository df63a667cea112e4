"""What every store checks and computes for leases before it touches its rows.

Lease times are whole Unix milliseconds of the store's clock; a ttl is rounded up to them.
Knows no store: tokens and who holds what are each store's own.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from .errors import CorruptRow, InvalidRequest

if TYPE_CHECKING:
    from .record import Checkpoint, Lease

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_LONGEST_TTL = timedelta(days=36_500)  # its end is a date, whatever the year


def system_now() -> datetime:
    """The default lease clock: this process's wall time."""
    return datetime.now(UTC)


def to_milliseconds(moment: datetime) -> int:
    """Unix milliseconds of an instant, cut to the whole one."""
    return (moment - _EPOCH) // _MILLISECOND


def from_milliseconds(milliseconds: int) -> datetime:
    """The aware instant of Unix milliseconds; raises `CorruptRow` outside the calendar."""
    try:
        return _EPOCH + milliseconds * _MILLISECOND
    except OverflowError as error:
        raise CorruptRow(f"bad lease expiry '{milliseconds}' in the store") from error


def ttl_milliseconds(ttl: timedelta) -> int:
    """The ttl, rounded up; raises `InvalidRequest` under a millisecond or over a century."""
    if ttl < _MILLISECOND:
        raise InvalidRequest("a lease's ttl must be at least 1 millisecond")
    if ttl > _LONGEST_TTL:
        raise InvalidRequest(f"a lease's ttl must be at most {_LONGEST_TTL.days} days")
    return -(-ttl // _MILLISECOND)


def check_owner(owner: str) -> None:
    """Raise `InvalidRequest` for a blank owner."""
    if not owner.strip():
        raise InvalidRequest("a lease needs an owner")


def check_lease_of(checkpoint: Checkpoint, lease: Lease | None, *, release: bool) -> None:
    """Raise `InvalidRequest` for a lease of another thread than the checkpoint's, or none to release."""
    if release and lease is None:
        raise InvalidRequest(f"a save of thread '{checkpoint.thread_id}' has no lease to release")
    if lease is not None and lease.thread_id != checkpoint.thread_id:
        raise InvalidRequest(
            f"the lease is for thread '{lease.thread_id}', "
            f"not the checkpoint's thread '{checkpoint.thread_id}'"
        )
