"""The shop: sends orders at a steady pace and answers whatever waits.

Knows threads only through the client, as any producer does. A thread that waits for a
person is approved, rejected or ended as planned; one that waits for its event gets it; a
timer needs nobody.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING

from outcrop.topics import DecisionBody, GraphRef
from outcrop.topics.ids import new_command_id

from .plan import Verdict
from .progress import Progress, Stage

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from outcrop.topics import Outcome
    from outcrop.topics.client import ThreadsClient

    from .plan import PlannedOrder

SENDING_SECONDS = 30.0
"""How long the orders keep coming: about as long as the embedded broker keeps a dead worker's place."""


class Shop:
    """Sends all orders and sees each to its end; `progress` tells how far it is."""

    def __init__(
        self, client: ThreadsClient, orders: Sequence[PlannedOrder], *, clock: Callable[[], float]
    ) -> None:
        self._client = client
        self._orders = {planned.thread_id: planned for planned in orders}
        self._clock = clock
        self.progress = Progress(len(orders))

    async def serve(self) -> None:
        """Return when every thread is at its end."""
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(self._send_all())
            async with aclosing(self._client.outcomes()) as outcomes:
                async for outcome in outcomes:
                    stage = self.progress.came(outcome, self._clock())
                    if stage is Stage.PERSON or stage is Stage.EVENT:
                        tasks.create_task(self._answer(outcome, stage))
                    if self.progress.is_over:
                        break
            await sending

    async def _send_all(self) -> None:
        pause = SENDING_SECONDS / len(self._orders)
        for planned in self._orders.values():
            await self._client.run(
                planned.thread_id,
                graph=GraphRef(id="orders"),
                state=planned.order,
                command_id=self._intend(planned.thread_id),
            )
            await asyncio.sleep(pause)

    async def _answer(self, outcome: Outcome, stage: Stage) -> None:
        thread_id = outcome.thread_id
        planned = self._orders[thread_id]
        await asyncio.sleep(planned.answer_after)
        command_id = self._intend(thread_id)
        if stage is Stage.EVENT:
            await self._client.signal(thread_id, "payment.settled", {"settled": True}, command_id=command_id)
        elif planned.verdict is Verdict.END:
            await self._client.end(thread_id, by="demo", command_id=command_id)
        else:
            await self._client.resume(
                thread_id,
                decision=DecisionBody(approved=planned.verdict is Verdict.APPROVE, by="demo"),
                expected_sequence=outcome.sequence,
                command_id=command_id,
            )

    def _intend(self, thread_id: str) -> UUID:
        """A new command's ID, noted before it is sent so that no outcome overtakes the note."""
        command_id = new_command_id()
        self.progress.sent(thread_id, command_id, self._clock())
        return command_id
