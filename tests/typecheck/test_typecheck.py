"""Graphs are typed end to end: wrong states, handlers, conditions and options are type errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def test_graph_types(tmp_path: Path) -> None:
    """Accepts what is right, refuses what is wrong: see `graph_types.py`."""
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", f"--cache-dir={tmp_path}", HERE / "graph_types.py"],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
