"""Our twins of the peer's graphs export what the peer's own export says (A033 to A071, its fixtures)."""

from __future__ import annotations

import json
import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import problems_of, read_definition
from support.twins import NAMES, Variant, twin

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT = timedelta(seconds=5)
VARIANTS = {
    "plain": ([], Variant()),
    "identified": (
        ["--graph-id", "orders", "--graph-version", "7"],
        Variant(graph_id="orders", graph_version="7"),
    ),
    "unversioned": (["--graph-id", "orders"], Variant(graph_id="orders")),
    "timeout": (["--timeout-ms", "5000"], Variant(timeout=TIMEOUT)),
    "no route": (
        ["--timeout-ms", "5000", "--no-timeout-route"],
        Variant(timeout=TIMEOUT, timeout_route=False),
    ),
}


def _exported(peer: Path, name: str, options: list[str]) -> str:
    done = subprocess.run(
        [peer, "definition", "--graph", name, *options], capture_output=True, text=True, check=True
    )
    return done.stdout


@pytest.mark.peer
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", NAMES)
def test_a_twin_exports_what_the_peer_does(peer: Path, name: str, variant: str) -> None:
    """A033, A038 to A040, A047, A051, A052, A054, A060, A066, A071."""
    options, told = VARIANTS[variant]
    theirs = _exported(peer, name, options)
    ours = twin(name, told).definition()
    assert json.loads(ours.to_json()) == json.loads(theirs)
    assert read_definition(theirs) == ours
    assert problems_of(read_definition(theirs)) == ()
