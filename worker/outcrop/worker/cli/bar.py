"""How far a long command is: a bar on a terminal, a remark every few seconds anywhere else.

Lines of the answer go above the bar, so that neither overwrites the other.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Protocol

from .terminal import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rich.progress import Progress

    from .terminal import Screen

_REMARK_EACH_SECONDS: Final = 5.0


class Bar(Protocol):
    """Shows how far it is, and takes lines meanwhile."""

    def show(self, done: int, text: str) -> None:
        """So much is done, with a few words beside it."""
        ...

    def columns(self, cells: tuple[str, ...]) -> None:
        """One line of the answer."""
        ...


class DrawnBar:
    """A rich progress bar."""

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=total, text="")

    def show(self, done: int, text: str) -> None:
        """Move the bar."""
        self._progress.update(self._task, completed=done, text=text)

    def columns(self, cells: tuple[str, ...]) -> None:
        """Print above the bar; nothing in it is markup."""
        self._progress.console.print("  ".join(map(escape, cells)), markup=False, highlight=False)


class PlainBar:
    """Remarks on standard error, the answer on standard output."""

    def __init__(
        self, screen: Screen, total: int | None = None, *, seconds: Callable[[], float] = time.monotonic
    ) -> None:
        self._screen = screen
        self._total = total
        self._seconds = seconds
        self._remarked = seconds()

    def show(self, done: int, text: str) -> None:
        """Remark on it, if the last remark is long enough ago."""
        if self._seconds() - self._remarked >= _REMARK_EACH_SECONDS:
            self._remarked = self._seconds()
            self._screen.note(f"{done}{'' if self._total is None else f' of {self._total}'} {text}")

    def columns(self, cells: tuple[str, ...]) -> None:
        """Print the line."""
        self._screen.columns(cells)


@contextmanager
def bar_on(screen: Screen, total: int) -> Generator[Bar]:
    """The bar that suits the screen, for the length of a block."""
    if not screen.draws:
        yield PlainBar(screen, total)
        return
    from rich import progress as rich  # noqa: PLC0415 - an extra
    from rich.console import Console  # noqa: PLC0415 - an extra

    beside = rich.TextColumn("{task.fields[text]}", markup=False)
    columns = (rich.BarColumn(), rich.MofNCompleteColumn(), beside, rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(file=screen.out)) as progress:
        yield DrawnBar(progress, total)
