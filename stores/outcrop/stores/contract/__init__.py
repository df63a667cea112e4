"""The suite that every store passes: what the port's docstrings promise, as runnable cases.

Bind it to a store in a test module of your own:

    from outcrop.stores.contract import CASES

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    def test_contract(case):
        case.run(MyBinding())  # see Binding
"""

from __future__ import annotations

from . import append, conditional, fenced, leases, log, notes, query, records, retention
from .case import Binding, Case
from .samples import SHAPES, sample

CASES: tuple[Case, ...] = tuple(
    case
    for module in (append, conditional, fenced, leases, log, notes, query, records, retention)
    for case in module.capability.cases
)
"""Every behaviour, by capability."""

__all__ = ["CASES", "SHAPES", "Binding", "Case", "sample"]
