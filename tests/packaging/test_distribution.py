"""The built wheel, made from the sdist, works in an environment of its own."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "schema" / "checkpoint.schema.json"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the sdist of this checkout."""
    built = tmp_path_factory.mktemp("built")
    subprocess.run([sys.executable, "-m", "build", "--outdir", str(built), str(ROOT)], check=True)
    return next(built.glob("outcrop-*.whl"))


def test_the_wheel_holds_one_namespace_and_the_schema_bytes(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"outcrop"}
        assert "outcrop/__init__.py" not in names
        for package in ("engine", "stores", "topics", "worker"):
            assert f"outcrop/{package}/py.typed" in names
        assert archive.read("outcrop/stores/checkpoint.schema.json") == SCHEMA.read_bytes()


def test_the_console_script_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True)
    scripts = tmp_path / "venv" / "bin"
    pip = [str(scripts / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True)
    shutil.copy(ROOT / "tests/interop/fixtures/sqlite.db", tmp_path / "threads.db")
    listed = subprocess.run(
        [str(scripts / "outcrop"), "thread", "list", "--json", "--storage", str(tmp_path / "threads.db")],
        check=True,
        capture_output=True,
        text=True,
    )
    assert "order-1001" in listed.stdout
    bare = subprocess.run(
        [str(scripts / "outcrop"), "send", "end", "t"], check=False, capture_output=True, text=True
    )
    assert bare.returncode != 0
    assert "pip install 'outcrop[kafka]'" in bare.stderr
