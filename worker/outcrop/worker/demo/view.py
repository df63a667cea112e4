"""What is shown while the demonstration runs: a live table on a terminal, a line now and then in a pipe."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from .progress import Stage

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType
    from rich.live import Live

    from .progress import Progress

_LINE_EACH_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class WorkerView:
    """One worker as it is shown."""

    name: str
    pid: int
    fate: str


@dataclass(frozen=True, slots=True)
class Moment:
    """All that a view shows at one time."""

    seconds: float
    progress: Progress
    workers: tuple[WorkerView, ...]
    news: str


class View(Protocol):
    """Shows moments between `with` and its end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, moment: Moment) -> None:
        """Show this moment, or skip it when one was shown just now."""
        ...


def make_view(*, as_json: bool = False) -> View:
    """The live table where standard output is a terminal and rich is there, else plain lines.

    `as_json` leaves standard output to the document at the end.
    """
    if as_json:
        return PlainView(sys.stderr)
    if sys.stdout.isatty() and importlib.util.find_spec("rich") is not None:
        return LiveView()
    return PlainView(sys.stdout)


class PlainView:
    """A line every two seconds, and one for all news."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._last = -_LINE_EACH_SECONDS
        self._news = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, moment: Moment) -> None:
        """Print what is new, and the counts if the last ones are old."""
        if moment.news != self._news:
            self._news = moment.news
            self._print(moment, moment.news)
        if moment.seconds - self._last >= _LINE_EACH_SECONDS:
            self._last = moment.seconds
            self._print(moment, _counts(moment))

    def _print(self, moment: Moment, text: str) -> None:
        self._out.write(f"{moment.seconds:5.1f} s  {text}\n")
        self._out.flush()


class LiveView:
    """A table that stays in place; only built with the extra `cli`."""

    def __init__(self) -> None:
        self._live: Live | None = None

    def __enter__(self) -> Self:
        from rich.live import Live  # noqa: PLC0415 - an extra

        self._live = Live(auto_refresh=False)
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, moment: Moment) -> None:
        """Draw the table anew."""
        if self._live is not None:
            self._live.update(_drawing(moment), refresh=True)


def _counts(moment: Moment) -> str:
    progress = moment.progress
    waiting = [progress.count(stage) for stage in (Stage.PERSON, Stage.EVENT, Stage.TIMER)]
    alive = sum(worker.fate == "working" for worker in moment.workers)
    return (
        f"started {len(progress.stages)}/{progress.threads}, moving {progress.count(Stage.MOVING)}, "
        f"waiting {sum(waiting)} (person {waiting[0]}, event {waiting[1]}, timer {waiting[2]}), "
        f"finished {progress.finished}, {progress.rate(moment.seconds):.0f} outcomes/s, "
        f"workers {alive} of {len(moment.workers)}"
    )


def _drawing(moment: Moment) -> RenderableType:
    from rich.console import Group  # noqa: PLC0415 - an extra
    from rich.progress_bar import ProgressBar  # noqa: PLC0415 - an extra
    from rich.table import Table  # noqa: PLC0415 - an extra
    from rich.text import Text  # noqa: PLC0415 - an extra

    progress = moment.progress
    threads = Table(box=None, show_header=False, pad_edge=False)
    for stage in Stage:
        number = progress.count(stage)
        bar = ProgressBar(total=progress.threads, completed=number, width=40)
        threads.add_row(stage.value, Text(str(number), justify="right"), bar)
    workers = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("WORKER", "PROCESS", "OUTCOMES", ""):
        workers.add_column(column)
    for worker in moment.workers:
        style = "green" if worker.fate == "working" else "red"
        outcomes = str(progress.by_worker[worker.name])
        workers.add_row(worker.name, str(worker.pid), outcomes, Text(worker.fate, style=style))
    head = (
        f"{moment.seconds:5.1f} s   {len(progress.stages)} of {progress.threads} orders sent   "
        f"{progress.rate(moment.seconds):.0f} outcomes/s"
    )
    return Group(Text(head, style="bold"), threads, Text(), workers, Text(), Text(moment.news))
