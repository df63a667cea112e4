"""What `outcrop.engine` offers."""

from __future__ import annotations

from outcrop import engine


def test_exports_are_sorted_and_there() -> None:
    assert engine.__all__ == sorted(set(engine.__all__))
    assert all(hasattr(engine, name) for name in engine.__all__)
    assert {"Graph", "Threads", "NodeContext", "Retry", "RunOptions", "Completed", "ManualClock"} <= set(
        engine.__all__
    )
