"""The shipped contract suite on Redis (stores-cases A1-A13, B, C1-C11, I)."""

from __future__ import annotations

from typing import Any

import pytest

from outcrop.stores.contract import CASES, Case
from outcrop.stores.options import DeltaOptions, OffloadOptions
from support.redis import RedisBinding

_KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "deltas": {"deltas": DeltaOptions(full_every=4)},
    "offload": {"offload": OffloadOptions(threshold=1)},
    "both": {"deltas": DeltaOptions(full_every=3), "offload": OffloadOptions(threshold=8)},
}


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(case: Case, kind: str, redis_server: str) -> None:
    case.run(RedisBinding(redis_server, **_KINDS[kind]))
