"""Work whose caller was cancelled goes on, and its failure is nobody's complaint."""

from __future__ import annotations

import asyncio
import gc

import pytest

from outcrop.stores.outlasting import outlasting


async def test_work_goes_on_without_its_caller() -> None:
    gate = asyncio.Event()
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))

    async def work() -> str:
        await gate.wait()
        raise ValueError("nobody waits for this")

    task = asyncio.create_task(work())
    caller = asyncio.create_task(outlasting(task))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert not task.done()
    gate.set()
    await asyncio.wait((task,))
    await asyncio.sleep(0)
    del task, caller
    gc.collect()
    assert complaints == []


async def test_a_caller_that_stays_hears_of_the_end() -> None:
    async def work(*, fails: bool) -> str:
        if fails:
            raise ValueError("told")
        return "done"

    assert await outlasting(asyncio.create_task(work(fails=False))) == "done"
    with pytest.raises(ValueError, match="told"):
        await outlasting(asyncio.create_task(work(fails=True)))
