"""`outcrop demo` from end to end, as a user runs it: real processes, one of them killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

DEMO = (sys.executable, "-m", "outcrop.worker.cli", "demo")


def _processes_of(folder: Path) -> list[str]:
    """The processes that were told of this folder, by argument or environment."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            told = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:  # it has gone, or is somebody else's
            continue
        if f"{folder}/outcrop-demo-".encode() in told:
            found.append(told.decode(errors="replace"))
    return found


def test_the_demonstration_keeps_its_promise_and_cleans_up(tmp_path: Path) -> None:
    """I1-I6 in small: a worker dies with runs in flight, each payment is applied once."""
    done = subprocess.run(
        [*DEMO, "--threads", "40"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every payment was applied exactly once" in done.stdout
    assert "was killed with" in done.stdout
    table = dict(re.findall(r"^([^\t\n]+)\t(.+)$", done.stdout, re.MULTILINE))
    threads = sum(int(number) for what, number in table.items() if what.startswith("threads "))
    assert threads == 40
    assert int(table["recoveries"]) >= 1 or table["runs in flight when a worker was killed"] == "0"
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert _processes_of(tmp_path) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_interrupted_it_leaves_nothing_behind(tmp_path: Path, number: signal.Signals) -> None:
    demo = subprocess.Popen(
        [*DEMO, "--threads", "40"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert demo.stdout is not None
    while "share the threads" not in (line := demo.stdout.readline()):
        assert line
    demo.send_signal(number)
    _, said = demo.communicate(timeout=60)
    assert (demo.returncode, said) == (130, "")
    assert list(tmp_path.iterdir()) == []
    assert _processes_of(tmp_path) == []


def test_one_worker_is_too_few() -> None:
    done = subprocess.run([*DEMO, "--workers", "1"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "[OUTCROP_USAGE]" in done.stderr
