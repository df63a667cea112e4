"""Whole workers under seeded faults: worker.md's invariants hold, whatever happens."""

from __future__ import annotations

import pytest

from support.simulation import Simulation


@pytest.mark.parametrize("seed", range(30))
async def test_invariants_hold_under_faults(seed: int) -> None:
    assert await Simulation(seed).run() == []
