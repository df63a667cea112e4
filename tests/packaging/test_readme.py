"""What the READMEs show works as shown, and what they list is all there is."""

from __future__ import annotations

import ast
import re
import shlex
import sys
from pathlib import Path

import pytest

from outcrop.engine import Completed, FailureKind, RefusalCode, Threads
from outcrop.stores import MemoryStore, OutcropError
from outcrop.topics.errors import BadKind
from outcrop.worker import load_graphs
from outcrop.worker.cli.command import _parser
from outcrop.worker.decisions import Reason
from outcrop.worker.metrics import COUNTERS, GAUGES
from outcrop.worker.settings import PREFIX, Settings

ROOT = Path(__file__).parents[2]
PACKAGES = ("engine", "stores", "topics", "worker")


def blocks(language: str) -> list[str]:
    """The root README's code blocks in a language."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def command_lines() -> list[str]:
    """Every `outcrop …` line that the root README tells people to type."""
    return [line for block in blocks("sh") for line in block.splitlines() if line.startswith("outcrop ")]


async def test_the_graph_compiles_and_runs_as_shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop.py").write_text(blocks("python")[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    (app,) = load_graphs("shop:app")
    order = sys.modules.pop("shop").Order(amount=5)
    result = await Threads(app, MemoryStore()).run("order-1", order)
    assert isinstance(result, Completed)
    assert result.state.receipt is not None


def test_every_python_block_is_python() -> None:
    for number, block in enumerate(blocks("python")):
        compile(block, f"README.md, block {number}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


def test_commands_are_shown() -> None:
    assert len(command_lines()) >= 5


@pytest.mark.parametrize("line", command_lines())
def test_every_command_line_parses(line: str) -> None:
    _, *arguments = shlex.split(line, comments=True)
    assert callable(_parser().parse_args(arguments).act)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_in_its_readme(package: str) -> None:
    readme = (ROOT / package / "README.md").read_text(encoding="utf-8")
    modules = {path.name for path in (ROOT / package / "outcrop").rglob("*.py")} - {"__init__.py"}
    assert sorted(name for name in modules if name not in readme) == []


def told(package: str) -> set[str]:
    """What a package's README sets in code type."""
    return set(re.findall(r"`([^`\n]+)`", (ROOT / package / "README.md").read_text(encoding="utf-8")))


def test_the_worker_readme_lists_settings_metrics_and_codes() -> None:
    names = {*Settings.model_fields, *(PREFIX + name.upper() for name in Settings.model_fields)}
    names |= {*COUNTERS, *GAUGES, *(reason.value for reason in Reason), *(kind.value for kind in BadKind)}
    assert names - told("worker") == set()


def test_the_engine_readme_lists_its_codes() -> None:
    assert {*RefusalCode, *FailureKind} - told("engine") == set()


def test_every_error_code_is_in_a_readme() -> None:
    shown = set[str]().union(*map(told, PACKAGES))
    kinds = [OutcropError]
    for kind in kinds:
        kinds += [other for other in kind.__subclasses__() if other.__module__.startswith("outcrop.")]
    assert {kind.code for kind in kinds} - shown == set()
