"""Signals: the first drains, the second ends the process at once, also with the loop blocked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from outcrop.worker.drain import Drain

PROGRAM = """
import asyncio, sys, time
from outcrop.worker.drain import Drain

async def main():
    drain = Drain()
    with drain.on_signals():
        print("ready", flush=True)
        if sys.argv[1] == "blocked":
            time.sleep(60)
        await drain.wait()
        print("draining", flush=True)
        if sys.argv[1] == "slow":
            await asyncio.sleep(60)

asyncio.run(main())
"""


def start(mode: str) -> subprocess.Popen[str]:
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, mode], stdout=subprocess.PIPE, text=True)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def end(program: subprocess.Popen[str]) -> int:
    try:
        return program.wait(timeout=30)
    finally:
        program.kill()
        if program.stdout is not None:
            program.stdout.close()
        program.wait()


async def test_the_first_signal_asks() -> None:
    drain = Drain()
    before = signal.getsignal(signal.SIGTERM)
    with drain.on_signals():
        assert not drain.asked
        os.kill(os.getpid(), signal.SIGTERM)
        await drain.wait()
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_process_drains_at_sigterm() -> None:
    program = start("quick")
    program.send_signal(signal.SIGTERM)
    assert end(program) == 0


def test_a_second_signal_ends_at_once() -> None:
    program = start("slow")
    program.send_signal(signal.SIGINT)
    assert program.stdout is not None
    assert program.stdout.readline() == "draining\n"
    program.send_signal(signal.SIGTERM)
    assert end(program) == 130


def test_a_second_signal_ends_a_process_whose_loop_is_blocked() -> None:
    program = start("blocked")
    program.send_signal(signal.SIGTERM)
    program.send_signal(signal.SIGINT)
    assert end(program) == 130
