"""The shipped contract suite on Postgres, in each way that it may be opened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from outcrop.stores.contract import CASES
from outcrop.stores.options import DeltaOptions, GroupCommitOptions, OffloadOptions
from support.postgres import PostgresBinding

if TYPE_CHECKING:
    from outcrop.stores.contract import Case

WAYS: dict[str, dict[str, Any]] = {
    "plain": {},
    "encoded": {"deltas": DeltaOptions(full_every=4), "offload": OffloadOptions(threshold=1)},
    "group": {"group_commit": GroupCommitOptions()},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case: Case, way: str, postgres_server: str) -> None:
    """A1-A13, B, C1-C11, I (P, G, D, O)."""
    case.run(PostgresBinding(postgres_server, **WAYS[way]))
