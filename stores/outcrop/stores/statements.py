"""Named SQL and Lua out of an adapter's files.

A statement is the text from its `-- name:` line to the next name, less comments and the
closing semicolon.
"""

from __future__ import annotations

import re
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^\s*--.*\n", re.MULTILINE)


def named_statements(package: str | None, file: str) -> dict[str, str]:
    """The statements of one file beside a module, by name; `package` is the module's `__package__`."""
    if package is None:
        raise ValueError(f"{file} is beside no package")
    _, *parts = _NAME.split(files(package).joinpath(file).read_text(encoding="utf-8"))
    return {
        name: _COMMENT.sub("", text + "\n").strip().removesuffix(";")
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }
