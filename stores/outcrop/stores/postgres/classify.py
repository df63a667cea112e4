"""Which Postgres failures pass, which leave it open what happened, and what the port calls the rest.

Decides by SQLSTATE and by what became of the connection. Only the server's primary message
is ever shown: its details quote values, and values are states.
"""

from __future__ import annotations

import ssl
from typing import Final

import asyncpg

from outcrop.stores.errors import InvalidRequest, StoreError, Unavailable
from outcrop.stores.retries import InDoubt

_PASSING: Final = frozenset(
    {
        "57P01",  # the server shuts down, or an administrator ended the backend
        "57P02",  # it crashed
        "57P03",  # it starts up
        "40001",  # serialization failure
        "40P01",  # deadlock: another transaction was let through
        "53300",  # too many connections
    }
)
_PASSING_CLASS: Final = "08"  # connection exceptions
_ROLLED_BACK: Final = frozenset({"40001", "40P01", "53300"})
_UNFIT_CLASSES: Final = frozenset({"22", "54"})
"""A value that a column can't hold; a limit of the program that it is over."""


_LOST: Final = "the connection to Postgres was lost"


class Unanswered(InDoubt):
    """A call in doubt; `backend` is the server's process ID of its connection, as the server told it."""

    def __init__(self, message: str, backend: int) -> None:
        super().__init__(message)
        self.backend = backend


def is_passing(sqlstate: str | None) -> bool:
    """Whether a failure with this SQLSTATE is worth a retry."""
    return sqlstate is not None and (sqlstate in _PASSING or sqlstate.startswith(_PASSING_CLASS))


def connect_error(error: Exception) -> StoreError:  # noqa: PLR0911 - the table of kinds, a line each
    """The port's error for a connection that didn't come about."""
    match error:
        case StoreError():
            return error
        case ssl.SSLCertVerificationError():
            return StoreError(f"the Postgres server's certificate isn't accepted: {error.verify_message}")
        case TimeoutError():
            return Unavailable("no connection to Postgres in time")
        case asyncpg.PostgresError():
            return _of_server(error)
        case ConnectionError() if "rejected SSL" in str(error):
            return StoreError("the Postgres server refused TLS: see `sslmode` in the URL")
        case asyncpg.ClientConfigurationError() if "certificate" in str(error):
            return StoreError(
                "this `sslmode` needs a root certificate: name one with `sslrootcert` in the Postgres URL, "
                "or put it at ~/.postgresql/root.crt"
            )
        case OSError():
            return Unavailable(f"no connection to Postgres: {error.strerror or type(error).__name__}")
        case _:  # what asyncpg makes of a URL may quote it
            return InvalidRequest(
                "asyncpg can't use this Postgres URL: it has the form "
                "postgres://user:password@host:port/database?option=value, percent-encoded"
            )


def call_error(error: Exception, *, backend: int, closed: bool) -> StoreError:
    """The port's error for a call on a connection, which the failure may have closed."""
    match error:
        case StoreError():
            return error
        case asyncpg.PostgresError():
            told = _of_server(error)
            in_doubt = closed or (isinstance(told, Unavailable) and error.sqlstate not in _ROLLED_BACK)
            return Unanswered(f"{_LOST}: {_message(error)}", backend) if in_doubt else told
        case asyncpg.DataError():  # its message quotes the value
            return InvalidRequest("an argument isn't valid Unicode, or is out of its column's range")
        case TimeoutError():
            return Unanswered("no answer from Postgres in time", backend)
        case _ if closed or isinstance(error, OSError):
            return Unanswered(_LOST, backend)
        case _:
            return StoreError(f"the Postgres driver failed: {type(error).__name__}")


def _of_server(error: asyncpg.PostgresError) -> StoreError:
    sqlstate = error.sqlstate or ""
    if is_passing(sqlstate):
        return Unavailable(_message(error))
    if sqlstate[:2] in _UNFIT_CLASSES:
        return InvalidRequest(f"Postgres can't hold a value of the call (SQLSTATE {sqlstate})")
    return StoreError(_message(error))


def _message(error: asyncpg.PostgresError) -> str:
    return str(error.args[0]) if error.args else type(error).__name__
