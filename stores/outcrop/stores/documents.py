"""Settings documents: reading one, and holding it to a model of its sections.

Owns how a document's problems are told: each by its key, with its value only where that is
a duration that can't be read, since a URL may hold a password. Knows no setting.
"""

from __future__ import annotations

import tomllib
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self, cast

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from .durations import parse_duration
from .errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Mapping


def _duration(value: object) -> object:
    if isinstance(value, timedelta) and value < timedelta():
        raise ValueError("a duration can't be below zero")
    if not isinstance(value, str | int | float):
        return value
    try:
        return parse_duration(value)
    except InvalidRequest as error:
        raise ValueError(str(error)) from None


Duration = Annotated[timedelta, BeforeValidator(_duration)]
"""A field that takes whatever `parse_duration` does, and a `timedelta`."""


class Section(BaseModel):
    """A part of a settings document; frozen, and keys that it doesn't know are others'."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @classmethod
    def of(cls, document: Mapping[str, object]) -> Self:
        """The section as a document gives it; raises `InvalidRequest` with every problem."""
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            problems = error.errors(include_url=False, include_context=False, include_input=False)
            told = (f"{'.'.join(map(str, each['loc']))}: {problem_text(each['msg'])}" for each in problems)
            raise InvalidRequest("settings: " + "; ".join(told)) from None


def problem_text(message: str) -> str:
    """What pydantic says of a value, without its word for our own refusals."""
    return message.removeprefix("Value error, ")


def read_document(path: Path | str) -> dict[str, Any]:
    """The settings document in a file: JSON where its name ends in `.json`, TOML otherwise.

    Raises `InvalidRequest` when it can't be read, or isn't what its name says.
    """
    read = orjson.loads if Path(path).suffix == ".json" else tomllib.loads
    try:
        document: object = read(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidRequest(f"can't read the settings file {path}: {error.strerror}") from None
    except ValueError as error:
        kind = "JSON" if read is orjson.loads else "TOML"
        raise InvalidRequest(f"the settings file {path} isn't {kind}: {error}") from None
    if not isinstance(document, dict):
        raise InvalidRequest(f"the settings file {path} holds no object of settings")
    return cast("dict[str, Any]", document)
