"""The case table names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_every_test_in_the_table_exists() -> None:
    named = set(re.findall(r"::(test_\w+)", (TESTS / "stores" / "CASES.md").read_text(encoding="utf-8")))
    written = {
        node.name
        for path in TESTS.rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(named) > 100
    assert named - written == set()
