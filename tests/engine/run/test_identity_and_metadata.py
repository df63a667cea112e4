"""Sections L (no migration), M and T: who wrote a row, what callers put on it, what nodes are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from outcrop.engine import (
    Answer,
    CancelToken,
    CheckpointPolicy,
    Completed,
    Failed,
    Fatal,
    Graph,
    NodeContext,
    RefusalCode,
    Refused,
    Retry,
    RunOptions,
    Threads,
    Transient,
)
from outcrop.engine.failpoints import armed
from outcrop.engine.run_ids import uuid7
from outcrop.stores.record import GraphIdentity
from support.engine import BOUNDARIES, EVERY_NODE, LEASED, Crash, Doc, World, crashing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from outcrop.stores.record import Checkpoint, Lease

WRITTEN = "thread 't' was written by graph 'orders'"
ACME = RunOptions(metadata={"tenant": "acme", "team": "x"})


def asking(world: World, policy: CheckpointPolicy = BOUNDARIES, **identity: Any) -> Threads[Doc]:
    graph = world.graph("a", "b", **identity)
    graph.interrupt("a")
    return world.threads(graph.compile(checkpoints=policy))


@pytest.mark.parametrize("version", ["1", None])
async def test_rows_carry_the_graphs_identity(version: str | None) -> None:
    """L001, L002, L004."""
    world = World()
    threads = asking(world, id="orders", version=version)
    await threads.run("t", Doc())
    await threads.end("t")
    for row in await world.rows():
        assert (row.graph, row.schema_version) == (GraphIdentity("orders", version), "1.6.0")


async def test_failed_and_cancelled_rows_carry_it_too_and_an_unnamed_graph_writes_none() -> None:
    """L003."""
    world, token = World(), CancelToken()
    graph = world.graph(id="orders")
    world.failing(graph, "a", Fatal("no"))
    threads = world.threads(graph.compile())
    await threads.run("t", Doc())
    token.fire()
    await threads.run("u", Doc(), RunOptions(cancellation=token))
    assert (await world.last("t")).graph == (await world.last("u")).graph == GraphIdentity("orders")
    await asking(world).run("x", Doc())
    assert ((await world.last("x")).graph, (await world.last("x")).schema_version) == (None, "1.0.0")


@pytest.mark.parametrize(
    ("own", "message"),
    [
        (
            {"id": "other", "version": "1"},
            "thread 't' was written by graph 'orders' version 1, not 'other' version 1",
        ),
        (
            {"id": "orders", "version": "2"},
            f"{WRITTEN} version 1, not version 2, and this graph has no migration",
        ),
        (
            {"id": "orders"},
            f"{WRITTEN} version 1, not unversioned, and this graph has no migration",
        ),
        ({}, f"{WRITTEN} version 1, and this graph has no identity"),
    ],
)
async def test_another_graphs_thread_is_refused(own: dict[str, Any], message: str) -> None:
    """L005, L007."""
    world = World()
    threads = asking(world, id="orders", version="1")
    await threads.run("t", Doc())
    other = asking(world, **own)
    for refused in (
        await other.resume("t"), await other.signal("t", "x"), await other.end("t"),
    ):  # fmt: skip
        assert refused == Refused(thread_id="t", code=RefusalCode.IDENTITY, message=message)
    assert len(await world.rows()) == 1
    assert isinstance(await threads.resume("t"), Completed)


async def test_a_row_without_identity_resumes_under_a_named_graph() -> None:
    """L011."""
    world = World()
    await asking(world).run("t", Doc())
    named = asking(world, EVERY_NODE, id="orders", version="1")
    assert isinstance(await named.resume("t"), Completed)
    assert [row.graph for row in await world.rows()] == [None, *[GraphIdentity("orders", "1")] * 2]


async def test_rows_merge_the_callers_keys_with_the_engines() -> None:
    """M001, M002."""
    world = World()
    graph = world.graph()
    world.failing(graph, "a", Fatal("no"))
    await world.threads(graph.compile()).run("t", Doc(), ACME)
    assert (await world.last()).metadata == {
        "tenant": "acme", "team": "x", "error": "no", "error_kind": "fatal", "attempts": "1",
    }  # fmt: skip
    await asking(world).run("none", Doc())
    assert (await world.last("none")).metadata is None


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("", "run metadata keys can't be empty"),
        *(
            (key, f"run metadata key '{key}' is reserved")
            for key in ("error", "error_kind", "attempts", "cancel_reason", "strata.x", "outcrop.x")
        ),
    ],
)
async def test_reserved_keys_are_refused_before_any_write(key: str, message: str) -> None:
    """M003."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    options = RunOptions(metadata={key: "x"})
    for refused in (await threads.run("u", Doc(), options), await threads.resume("t", Answer(), options)):
        assert isinstance(refused, Refused)
        assert (refused.code, refused.message) == (RefusalCode.INVALID, message)
    assert (len(await world.rows()), await world.rows("u")) == (1, [])


@pytest.mark.parametrize("policy", list(CheckpointPolicy))
async def test_a_resume_carries_the_callers_keys_and_its_own_win(policy: CheckpointPolicy) -> None:
    """M004, M005, M006."""
    world = World()
    graph = world.graph("a", "b")
    graph.interrupt("a")
    graph.interrupt("b")
    threads = world.threads(graph.compile(checkpoints=policy))
    await threads.run("t", Doc(), ACME)
    old = await world.last()
    await threads.resume("t", Answer(), RunOptions(metadata={"team": "y"}))
    if policy is BOUNDARIES:
        assert (await world.rows())[1].metadata == old.metadata
    metadata = (await world.last()).metadata or {}
    assert {key: metadata[key] for key in metadata if key != "strata.hops"} == {"tenant": "acme", "team": "y"}
    assert world.contexts[-1].metadata == {"tenant": "acme", "team": "y"}


async def test_a_node_cannot_change_the_rows_metadata() -> None:
    world, graph = World(), Graph(Doc)

    @graph.node
    async def meddle(_doc: Doc, ctx: NodeContext) -> None:
        ctx.metadata["tenant"] = "other"  # type: ignore[index]  # the case

    result = await world.threads(graph.compile()).run("t", Doc(), ACME)
    assert isinstance(result, Failed)


class Marks:
    """Marks as a worker makes them, and what it was asked with."""

    def __init__(self, **marks: str) -> None:
        self.marks = {f"outcrop.{key}": value for key, value in marks.items()}
        self.asked = list[tuple[str, bool, int | None, bool]]()

    def __call__(self, row: Checkpoint, *, stamp: bool, lease: Lease | None) -> Mapping[str, str]:
        is_unmarked = not any(key.startswith("outcrop.") for key in row.metadata or {})
        self.asked.append(
            (row.status.value, stamp, None if lease is None else lease.token, is_unmarked or stamp)
        )
        return self.marks


def marks_of(row: Checkpoint) -> dict[str, str]:
    return {key[8:]: value for key, value in (row.metadata or {}).items() if key.startswith("outcrop.")}


async def test_every_row_is_marked_and_marks_are_not_carried() -> None:
    """worker.md 5: each row gets its own."""
    world, marks = World(), Marks(command_id="c1", fence="1")
    graph = world.graph("a", "b")
    graph.interrupt("a")
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc(), RunOptions(marks=marks, lease=LEASED.lease))
    assert marks.asked == [("running", False, 1, True), ("interrupted", False, 1, True)]
    assert [marks_of(row) for row in await world.rows()] == [{"command_id": "c1", "fence": "1"}] * 2
    await threads.resume("t")
    assert [marks_of(row) for row in (await world.rows())[2:]] == [{}, {}]
    assert world.contexts[-1].metadata == {}


async def test_a_stamp_keeps_its_rows_metadata_and_gains_the_marks() -> None:
    """worker.md 5: `outcrop.resume_id` on a Boundaries stamp, the rest untouched."""
    world, marks = World(), Marks(resume_id="c2")
    threads = asking(world)
    await threads.run("t", Doc(), RunOptions(metadata={"k": "v"}, marks=Marks(command_id="c1")))
    await threads.resume("t", Answer(), RunOptions(metadata={"k": "w"}, marks=marks))
    first, stamp = await world.rows()
    assert stamp.metadata == {**(first.metadata or {}), "outcrop.resume_id": "c2"}
    assert marks.asked == [("interrupted", True, None, True)]


async def test_a_recovery_keeps_the_marks_of_the_command_that_it_continues() -> None:
    """worker.md 5: whoever makes it; the call's own marks are laid over them."""
    world = World()
    _, threads = world.line("a", "b", "c")
    run = RunOptions(marks=Marks(command_id="c1", message="t/0/7", fence="1", cancel_id="no"))
    with armed(crashing("node.before", 2)), pytest.raises(Crash):
        await threads.run("t", Doc(), run)
    with armed(crashing("node.before", 2)), pytest.raises(Crash):
        await threads.recover("t", RunOptions(marks=Marks(fence="2", recovery_id="r1")))
    kept = {"command_id": "c1", "message": "t/0/7", "fence": "2", "recovery_id": "r1"}
    assert [marks_of(row) for row in (await world.rows())[2:]] == [kept, kept]
    await threads.recover("t")
    assert [marks_of(row) for row in (await world.rows())[4:]] == [
        {"command_id": "c1", "message": "t/0/7"}
    ] * 2


async def test_a_cancelled_dead_run_keeps_its_command_and_names_the_cancel() -> None:
    world = World()
    _, threads = world.line("a", "b")
    with armed(crashing("node.before", 2)), pytest.raises(Crash):
        await threads.run("t", Doc(), RunOptions(marks=Marks(command_id="c1", message="t/0/7")))
    await threads.cancel("t", RunOptions(marks=Marks(cancel_id="c2")))
    assert marks_of(await world.last()) == {"command_id": "c1", "message": "t/0/7", "cancel_id": "c2"}


async def test_a_failing_row_is_marked_like_any_other() -> None:
    world = World()
    graph = world.graph("a")
    world.trailing(graph, "b")
    graph.edge("a", "b", when=lambda _doc: False)
    threads = world.threads(graph.compile(checkpoints=EVERY_NODE))
    await threads.run("t", Doc(), RunOptions(marks=Marks(command_id="c1")))
    assert [marks_of(row) for row in await world.rows()] == [{"command_id": "c1"}] * 2


async def test_what_a_node_is_told() -> None:
    """T001, T002, R006."""
    world = World()
    graph = world.graph()
    world.failing(graph, "a", Transient("no"), retry=Retry(max_retries=1))
    threads = world.threads(graph.compile(), new_id=lambda: "run-7")
    service = Marks()
    await threads.run("t", Doc(), RunOptions(services={Marks: service}))
    one, two = world.contexts
    assert (one.thread_id, one.node, one.node_path, one.attempt, one.run_id) == ("t", "a", "a", 1, "run-7")
    assert (two.attempt, two.idempotency_key) == (2, one.idempotency_key)
    assert one.cancellation is not two.cancellation
    assert two.service(Marks) is service
    with pytest.raises(LookupError, match="asks for a World"):
        two.service(World)


async def test_each_call_has_a_run_id_of_its_own() -> None:
    """R006: UUIDv7 by default; an empty one is refused."""
    world = World()
    threads = asking(world)
    await threads.run("t", Doc())
    await threads.resume("t")
    first, second = (UUID(ctx.run_id) for ctx in world.contexts)
    assert (first.version, second.version) == (7, 7)
    assert first != second
    refused = await threads.run("t", Doc(), RunOptions(run_id=""))
    assert isinstance(refused, Refused)
    assert refused.message == "a run id can't be empty"


def test_run_ids_sort_by_time() -> None:
    ones = (1 << 74) - 1
    low, high = uuid7(1000, ones), uuid7(1001, 0)
    assert str(low) < str(high)
    for made in (low, high):
        assert (made.version, made.variant) == (7, "specified in RFC 4122")


def test_a_context_made_by_hand_has_its_defaults() -> None:
    """T003."""
    ctx = NodeContext(thread_id="t", node="n", node_path="n")
    assert (ctx.attempt, ctx.run_id, ctx.idempotency_key, ctx.is_recovery) == (1, "", "", False)
    assert (ctx.metadata, ctx.decision, ctx.last_failure, ctx.cancellation.fired) == ({}, None, None, False)
