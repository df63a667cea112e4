"""The case table names tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_test_in_the_table_exists() -> None:
    table = (HERE.parent / "CASES-RUN.md").read_text()
    named = set[tuple[str, str]]()
    for row in table.splitlines():
        file = ""
        for name in re.findall(r"`([a-z_]*(?:\.py)?::test_\w+)`", row):
            module, _, test = name.partition("::")
            file = module or file
            named.add((file, test))
    written = {
        (path.name, node.name)
        for path in HERE.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert len(named) > 100
    assert named <= written
