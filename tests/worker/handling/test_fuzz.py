"""Any bytes at all through codec and handler: a dead letter or a valid answer, never an error."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from outcrop.topics.codec import encode_command
from outcrop.worker.control import Control, Handled
from outcrop.worker.ports import Message, Partition
from support.handling import TOPIC, World, letters, outcomes

JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
WORLD = World()
VALID = [
    json.loads(encode_command(command))
    for command in (
        WORLD.run(),
        WORLD.run("approval"),
        WORLD.run("nobody's"),
        WORLD.resume(),
        WORLD.resume(answers={"colour": "red"}, value=None),
        WORLD.signal("first.came"),
        WORLD.update({"amount": 6}, as_node="a", at_sequence=1),
        WORLD.rerun(1, deadline=WORLD.clock.now()),
        WORLD.end(),
        WORLD.cancel(),
        WORLD.wake(2),
        WORLD.recover(0),
    )
]
FIELDS = sorted({field for command in VALID for field in command} | {"on_existing", "extra"})
HEADERS = st.lists(
    st.tuples(st.sampled_from(["outcrop-type", "traceparent", "x"]), st.binary(max_size=12)), max_size=2
).map(tuple)


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A valid command with a field changed or dropped, or its text cut."""
    command: dict[str, Any] = dict(draw(st.sampled_from(VALID)))
    for field in draw(st.lists(st.sampled_from(FIELDS), max_size=2)):
        if draw(st.booleans()):
            command.pop(field, None)
        else:
            command[field] = draw(JSON)
    text = json.dumps(command).encode()
    return text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 3)) == 0 else text


VALUES = st.none() | st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()) | mutated()
KEYS = st.sampled_from([b"t", b"t", b"t", None, b"", b"other", b"\xff"]) | st.binary(max_size=8)


@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck))
@given(value=VALUES, key=KEYS, headers=HEADERS)
def test_any_bytes_end_in_a_dead_letter_or_an_answer(
    value: bytes | None, key: bytes | None, headers: tuple[tuple[str, bytes], ...]
) -> None:
    asyncio.run(_handle(Message(Partition(TOPIC, 0), 7, key, value, headers)))


async def _handle(message: Message) -> None:
    handled = await World().process().handle(message, Control())
    assert isinstance(handled, Handled)
    found, dead = outcomes(handled), letters(handled)
    assert len(found) <= 1
    assert len(dead) <= 1
    for letter in dead:
        assert letter["outcrop-error-kind"] != "handler_error", "our own code failed"
        assert letter["outcrop-error"]
        assert (letter["outcrop-source-partition"], letter["outcrop-source-offset"]) == ("0", "7")
    if not dead and not found:  # only a driver's command may come to nothing
        assert json.loads(message.value or b"{}")["type"] in {"wake", "recover"}
    for outcome in found:
        assert outcome.status.value != "refused" or outcome.reason


async def test_ten_megabytes_are_refused_and_cut() -> None:
    message = Message(Partition(TOPIC, 0), 7, b"t", b'{"x":"' + b"y" * 10_000_000 + b'"}')
    handled = await World().process().handle(message)
    (letter,) = letters(handled)
    assert letter["outcrop-error-kind"] == "too_large"
    assert isinstance(handled, Handled)
    assert len(handled.records[0].value or b"") <= 500_000
