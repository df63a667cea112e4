"""A payment service in a process of its own, and the way to ask it.

It honours idempotency keys: whatever is asked again with a key gets that key's receipt. Each
request goes to the journal before its answer goes out, so the journal tells what was
asked for and what was applied even when whoever asked has died. Now and then it is busy and
says so, and it takes its time to answer: a worker killed meanwhile can't know what happened.

One JSON line asks, one answers, on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from outcrop.engine import Fatal, Transient

if TYPE_CHECKING:
    from typing import TextIO

PAYMENTS_ENV = "OUTCROP_DEMO_PAYMENTS"
"""Where the service listens, `host:port`; the workers' `charge` node reads it."""

_BUSY_EACH = 20
_ANSWER_SECONDS = 0.15


async def charge_at(address: str, *, key: str, amount: int) -> str:
    """Ask the service at `host:port` for a payment and return its receipt.

    Raises `Transient` when it is busy or gone (it may have been applied: ask again with the
    same key), `Fatal` when it declines.
    """
    host, _, port = address.rpartition(":")
    try:
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(json.dumps({"key": key, "amount": amount}).encode() + b"\n")
            await writer.drain()
            line = await reader.readline()
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    except OSError as error:
        raise Transient(f"the payment service can't be reached: {error}") from error
    if not line:
        raise Transient("the payment service hung up without an answer")
    answer = json.loads(line)
    match answer.get("status"):
        case "paid":
            return str(answer["receipt"])
        case "busy":
            raise Transient("the payment service is busy")
        case _:
            raise Fatal(f"the payment service declined: {answer.get('reason', 'no reason given')}")


class Till:
    """The accounts behind the service: at most one payment a key."""

    def __init__(self, journal: TextIO, *, busy_each: int = _BUSY_EACH) -> None:
        self._journal = journal
        self._busy_each = busy_each
        self._requests = 0
        self._receipts: dict[str, str] = {}

    def ask(self, key: str, amount: int) -> dict[str, str]:
        """Apply the payment unless its key was applied before; journal the request either way."""
        self._requests += 1
        if amount <= 0:
            return self._answer(key, amount, applied=False, status="declined", reason="nothing to pay")
        known = self._receipts.get(key)
        if known is not None:
            return self._answer(key, amount, applied=False, status="paid", receipt=known)
        if self._requests % self._busy_each == 0:
            return self._answer(key, amount, applied=False, status="busy")
        receipt = self._receipts[key] = f"receipt-{len(self._receipts) + 1:05}"
        return self._answer(key, amount, applied=True, status="paid", receipt=receipt)

    def _answer(self, key: str, amount: int, *, applied: bool, **answer: str) -> dict[str, str]:
        entry = {"key": key, "amount": amount, "applied": applied, "status": answer["status"]}
        self._journal.write(json.dumps(entry) + "\n")
        self._journal.flush()
        return answer


async def serve(till: Till, *, announce: TextIO, answer_after: float = _ANSWER_SECONDS) -> None:
    """Listen on a free loopback port, announce `host:port` as a line, and answer until cancelled."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                asked = json.loads(line)
                answer = till.ask(str(asked["key"]), int(asked["amount"]))
                await asyncio.sleep(answer_after)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    announce.write(f"{host}:{port}\n")
    announce.flush()
    async with server:
        await server.serve_forever()


def main() -> None:
    """`python -m outcrop.worker.demo.payments JOURNAL`: serve until the input ends or a signal comes.

    The input is a pipe of the demonstration's process, so that the service never outlives it.
    """
    parser = argparse.ArgumentParser(description="The payment service of `outcrop demo`.")
    parser.add_argument("journal", type=Path)
    journal_path: Path = parser.parse_args().journal
    with journal_path.open("a", encoding="utf-8") as journal, contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_until_input_ends(Till(journal)))


async def _until_input_ends(till: Till) -> None:
    serving = asyncio.create_task(serve(till, announce=sys.stdout))
    await asyncio.to_thread(sys.stdin.read)
    serving.cancel()
    await asyncio.gather(serving, return_exceptions=True)


if __name__ == "__main__":
    main()
