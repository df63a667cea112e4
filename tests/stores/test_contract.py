"""The shipped contract suite on every store (stores-cases A1-A13, B, C1-C11, I)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outcrop.stores.contract import CASES, Case
from support.stores import STORE_KINDS, store_binding

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", STORE_KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case: Case, kind: str, tmp_path: Path) -> None:
    case.run(store_binding(kind, tmp_path))
