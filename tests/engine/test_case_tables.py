"""The case tables have every case of the conformance list, and name tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
HOMES = {"CASES.md": "building", "CASES-RUN.md": "run"}
COUNTS = (72, 18, 25, 22, 28, 22, 31, 10, 33, 14, 12, 15, 7, 18, 11, 8, 11, 12, 8, 3, 10)
SECTIONS = dict(zip("ABCDEFGHIJKLMNOPQRSTU", COUNTS, strict=True))
"""How many cases each section of the list has."""


def rows(table: str) -> list[tuple[str, str]]:
    text = (TESTS / "engine" / table).read_text(encoding="utf-8")
    return re.findall(r"^\| ([A-Z]\d{3}[^|]*) \| (.*) \|$", text, re.MULTILINE)


def test_every_case_is_in_a_table() -> None:
    told = set[str]()
    for table in HOMES:
        for label, _ in rows(table):
            for first, last in re.findall(r"([A-Z]\d{3})(?: to ([A-Z]\d{3}))?", label):
                numbers = range(int(first[1:]), int((last or first)[1:]) + 1)
                told |= {f"{first[0]}{number:03}" for number in numbers}
    assert told == {f"{name}{n:03}" for name, count in SECTIONS.items() for n in range(1, count + 1)}


@pytest.mark.parametrize("table", HOMES)
def test_no_case_is_left_for_later_and_every_test_named_exists(table: str) -> None:
    named = set[tuple[str, str]]()
    for label, told in rows(table):
        assert not re.search(r"\blater\b", told), label
        file = ""
        for path, test in re.findall(r"`([\w./]*\.py)?::(test_\w+)`", told):
            file = path or file
            assert file, f"{label} names a test of no file"
            named.add((file, test))
    assert len(named) > 50
    assert [one for one in sorted(named) if one[1] not in _written(HOMES[table], one[0])] == []


def _written(home: str, file: str) -> set[str]:
    folders = (TESTS.parent, TESTS / "engine", TESTS / "engine" / home)
    found = next((folder / file for folder in folders if (folder / file).is_file()), None)
    if found is None:
        return set()
    body = ast.parse(found.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
