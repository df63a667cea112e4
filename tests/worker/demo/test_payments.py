"""The payment service: one payment a key, whatever is asked, and a journal that says so."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from outcrop.engine import Fatal, Transient
from outcrop.worker.demo.payments import Till, charge_at

if TYPE_CHECKING:
    from pathlib import Path


def _journal(text: str) -> list[tuple[str, bool, str]]:
    return [(entry["key"], entry["applied"], entry["status"]) for entry in map(json.loads, text.splitlines())]


def test_a_key_is_applied_once_and_keeps_its_receipt() -> None:
    journal = io.StringIO()
    till = Till(journal, busy_each=1000)
    first, again, other = (till.ask(key, 10) for key in ("a", "a", "b"))
    assert first == again
    assert other["receipt"] != first["receipt"]
    assert _journal(journal.getvalue()) == [("a", True, "paid"), ("a", False, "paid"), ("b", True, "paid")]


def test_a_busy_service_applies_nothing() -> None:
    journal = io.StringIO()
    till = Till(journal, busy_each=2)
    assert [till.ask(key, 10)["status"] for key in ("a", "b", "b")] == ["paid", "busy", "paid"]
    assert _journal(journal.getvalue()) == [("a", True, "paid"), ("b", False, "busy"), ("b", True, "paid")]


def test_a_paid_key_is_never_busy() -> None:
    till = Till(io.StringIO(), busy_each=2)
    assert till.ask("a", 10) == till.ask("a", 10)


def test_nothing_to_pay_is_declined() -> None:
    assert Till(io.StringIO()).ask("a", 0)["status"] == "declined"


def test_the_process_answers_keeps_its_journal_and_ends_with_its_input(tmp_path: Path) -> None:
    journal = tmp_path / "payments.jsonl"
    with subprocess.Popen(
        [sys.executable, "-m", "outcrop.worker.demo.payments", str(journal)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        address = service.stdout.readline().strip()

        async def ask() -> list[str]:
            return await asyncio.gather(*(charge_at(address, key=key, amount=5) for key in ("a", "b", "a")))

        first, other, again = asyncio.run(ask())
        assert first == again != other
        with pytest.raises(Fatal):
            asyncio.run(charge_at(address, key="c", amount=0))
        service.stdin.close()
        assert service.wait(timeout=30) == 0
    applied = [key for key, is_applied, _ in _journal(journal.read_text()) if is_applied]
    assert sorted(applied) == ["a", "b"]


async def test_a_service_that_is_gone_is_worth_another_try() -> None:
    with pytest.raises(Transient):
        await charge_at("127.0.0.1:1", key="a", amount=5)


async def test_a_service_that_hangs_up_is_worth_another_try() -> None:
    async def hang_up(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(Transient):
            await charge_at(f"127.0.0.1:{port}", key="a", amount=5)
