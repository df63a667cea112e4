"""Settings as command-line options: one for each field, named and explained by the field itself.

What isn't given comes from the environment, the settings file or the default, as `settings`
says; nothing here knows a default.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast, get_args, get_origin

from outcrop.worker.settings import PREFIX, Settings, load_settings

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace
    from collections.abc import Iterable, Mapping

    from pydantic.fields import FieldInfo

BROKER: Final = ("bootstrap", "commands_topic", "outcomes_topic", "dead_topic", "events_topic")
"""The settings of commands that only talk to the broker."""

_DESTINATION = "setting_"


def add_settings(parser: ArgumentParser, names: Iterable[str]) -> None:
    """An option for each of these settings, and `--config`."""
    group = parser.add_argument_group("settings", f"also {PREFIX}… variables, and a TOML file")
    group.add_argument(
        "--config", type=Path, metavar="FILE", help=f"the TOML file (default: ${PREFIX}CONFIG, if set)"
    )
    for name in names:
        field = Settings.model_fields[name]
        options = ["--" + name.replace("_", "-"), *(["--storage"] if name == "store" else [])]
        destination = _DESTINATION + name
        if field.annotation is bool:
            group.add_argument(
                *options, action="store_true", default=None, dest=destination, help=_help(field)
            )
        else:
            group.add_argument(*options, metavar=_metavar(field), dest=destination, help=_help(field))


def settings_of(arguments: Namespace, **fixed: object) -> Settings:
    """The settings that hold for this call; `fixed` ones stand over everything."""
    return load_settings({**_given(arguments), **fixed}, config=arguments.config)


def _given(arguments: Namespace) -> Mapping[str, object]:
    return {
        name.removeprefix(_DESTINATION): value
        for name, value in vars(arguments).items()
        if name.startswith(_DESTINATION)
    }


def _metavar(field: FieldInfo) -> str:
    """The values of a choice; `VALUE` for anything else (pydantic reads it)."""
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    return "|".join(choices) or "VALUE"


def _help(field: FieldInfo) -> str:
    return ", ".join(filter(None, (field.description, _default(field)))).replace("%", "%%")


def _default(field: FieldInfo) -> str:
    if field.default_factory is not None or field.default in (None, False):
        return ""
    value = field.get_default()
    if isinstance(value, timedelta):
        return f"default {value.total_seconds():g}s"
    if isinstance(value, tuple):
        return f"default {','.join(cast('tuple[str, ...]', value))}"
    return f"default {value.get_secret_value() if hasattr(value, 'get_secret_value') else value}"
