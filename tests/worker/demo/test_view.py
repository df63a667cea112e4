"""What is shown while the demonstration runs."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from outcrop.topics.ids import new_command_id
from outcrop.worker.demo.progress import Progress
from outcrop.worker.demo.view import LiveView, Moment, PlainView, WorkerView, make_view

if TYPE_CHECKING:
    import pytest

    from outcrop.worker.demo.view import View


def _moment(seconds: float, news: str = "all is well") -> Moment:
    progress = Progress(2)
    progress.sent("order-1", new_command_id(), 0.0)
    workers = (WorkerView("worker-1", 7, "working"), WorkerView("worker-2", 8, "killed"))
    return Moment(seconds, progress, workers, news)


def _shown(view: View, *moments: Moment) -> None:
    with view:
        for moment in moments:
            view.show(moment)


def test_a_pipe_gets_a_line_now_and_then_and_all_news(capsys: pytest.CaptureFixture[str]) -> None:
    _shown(make_view(), _moment(0.0), _moment(0.5), _moment(1.0, "a worker died"), _moment(2.5))
    lines = capsys.readouterr().out.splitlines()
    assert [line[9:].split(",")[0] for line in lines] == [
        "all is well",
        "started 1/2",
        "a worker died",
        "all is well",
        "started 1/2",
    ]
    assert "workers 1 of 2" in lines[1]


def test_a_terminal_gets_a_live_table(monkeypatch: pytest.MonkeyPatch) -> None:
    class _Tty(io.StringIO):
        def isatty(self) -> bool:
            return True

    out = _Tty()
    monkeypatch.setattr("sys.stdout", out)
    view = make_view()
    assert isinstance(view, LiveView)
    _shown(view, _moment(1.0))
    assert "worker-2" in out.getvalue()
    assert "waiting for a person" in out.getvalue()


def test_without_rich_a_terminal_gets_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert isinstance(make_view(), PlainView)
