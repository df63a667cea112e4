"""What a Redis failure comes to: whether it may pass, and whether the call may have been done.

Decides by the server's error code. The driver's words stay the message, less what the server
repeats of a command, because that may be part of a state.
"""

from __future__ import annotations

from typing import Final

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import TimeoutError as DriverTimeout

from outcrop.stores.errors import StoreError, Unavailable
from outcrop.stores.retries import InDoubt

_PASSING: Final = frozenset(
    {
        "LOADING",  # the server reads its data from disk
        "BUSY",  # a script takes long
        "TRYAGAIN",
        "READONLY",  # a failover made the server a replica
        "MASTERDOWN",
        "CLUSTERDOWN",
        "NOREPLICAS",  # fewer are connected than the server wants for a write
        "OOM",  # somebody will make room; until then nothing is lost
        "MISCONF",  # the server can't write its data to disk
    }
)
_MOVED: Final = frozenset({"READONLY", "MASTERDOWN"})
_CUT_OFF: Final[tuple[tuple[type[RedisError], str], ...]] = (
    (BusyLoadingError, "LOADING"),
    (TryAgainError, "TRYAGAIN"),
    (ReadOnlyError, "READONLY"),
    (MasterDownError, "MASTERDOWN"),
    (ClusterDownError, "CLUSTERDOWN"),
    (OutOfMemoryError, "OOM"),
    (NoScriptError, "NOSCRIPT"),
    (NoPermissionError, "NOPERM"),
)
"""Codes that the driver takes off a reply's text."""


def code_of(error: RedisError) -> str:
    """The code that began an error reply."""
    for kind, code in _CUT_OFF:
        if isinstance(error, kind):
            return code
    return str(error).partition(" ")[0]


def reply_error(error: RedisError) -> StoreError:
    """The port's error for an error reply: the server did nothing of the call."""
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return StoreError(f"the Redis server refuses the credentials: {error}")
    code, text = code_of(error), str(error)
    text, _, _ = text.partition(", with args beginning with")
    message = text if text.startswith(code) else f"{code} {text}"
    return Unavailable(message) if code in _PASSING else StoreError(message)


def connect_error(error: BaseException) -> StoreError:
    """The port's error for a connection that couldn't be made: nothing was sent."""
    if isinstance(error, (TimeoutError, DriverTimeout)):
        return Unavailable("the Redis server didn't accept a connection in time")
    if isinstance(error, (ResponseError, BusyLoadingError, AuthenticationError, AuthorizationError)):
        return reply_error(error)
    return Unavailable(f"the Redis server can't be reached: {_words(error)}")


def broken_error(error: BaseException) -> InDoubt:
    """The port's error for a connection that failed with calls on it: they may have been done."""
    if isinstance(error, TimeoutError):
        return InDoubt("the Redis server didn't answer in time")
    return InDoubt(f"the connection to the Redis server broke: {_words(error)}")


def is_moved(error: RedisError) -> bool:
    """Whether another server may take the writes by now, under the same name."""
    return code_of(error) in _MOVED


def _words(error: BaseException) -> str:
    """What the driver or the system say; others' words may quote anything."""
    told = str(error) if isinstance(error, (RedisError, OSError)) else ""
    return told or type(error).__name__
