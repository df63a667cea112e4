"""What becomes of a test whose service isn't there."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(service: str, remedy: str) -> NoReturn:
    """Skip the test, or fail it where `OUTCROP_REQUIRE` names the service (CI does)."""
    if service in os.environ.get("OUTCROP_REQUIRE", "").split(","):
        pytest.fail(f"{service} is required here and missing: {remedy}")
    pytest.skip(f"no {service}: {remedy}")
