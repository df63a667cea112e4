"""Named points at which a test may crash a run, like `save.before` and `node.after`.

Owns one process-wide hook and nothing else; unarmed, a point costs one comparison. Points
stand only where a crash leaves something to look at: around store calls and node runs.

`OUTCROP_FAILPOINT=name[:n]` in the environment kills the process, as SIGKILL would, at
the n-th hit of that name (the first by default); it is read by `arm_from`, on request only.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

VARIABLE: Final = "OUTCROP_FAILPOINT"
KILLED: Final = 137  # what a shell reports for SIGKILL

_hook: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Tell the armed hook, if any, that the point `name` was reached."""
    if _hook is not None:
        _hook(name)


@contextmanager
def armed(hook: Callable[[str], None]) -> Generator[None]:
    """Have `hook` told of every point inside the block; what it raises strikes there."""
    global _hook  # noqa: PLW0603 - one hook a process is the point
    before, _hook = _hook, hook
    try:
        yield
    finally:
        _hook = before


def arm_from(environment: Mapping[str, str]) -> None:
    """Arm the kill that `OUTCROP_FAILPOINT` asks for; without it, do nothing."""
    global _hook  # noqa: PLW0603 - one hook a process is the point
    wanted, _, count = environment.get(VARIABLE, "").partition(":")
    if not wanted:
        return
    left = int(count or "1")

    def kill(name: str) -> None:
        nonlocal left
        if name == wanted:
            left -= 1
            if left == 0:
                os._exit(KILLED)

    _hook = kill
