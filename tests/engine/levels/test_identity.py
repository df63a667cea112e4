"""Which graph wrote each level of a thread, and what another version of it makes of that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import orjson
import pytest

from outcrop.engine import (
    Answer,
    Cancelled,
    CancelToken,
    CheckpointPolicy,
    CompilationFailed,
    Fatal,
    Graph,
    NodeContext,
    RecoverOptions,
    RefusalCode,
    RunOptions,
    Threads,
    WakeOptions,
)
from outcrop.engine.events import RunStarted
from outcrop.engine.failpoints import armed
from outcrop.stores.errors import InvalidRequest
from outcrop.stores.query import ThreadQuery
from outcrop.stores.record import Checkpoint, GraphIdentity
from support.engine import BOUNDARIES, EVERY_NODE, Crash, Doc, World, crashing, told
from support.fan_outs import Watch
from support.levels import done, failed, refused, sub, versions, waiting

POLICIES = list(CheckpointPolicy)

Migrate = Callable[[Checkpoint], Checkpoint | None]


def threads_of(
    world: World,
    *,
    outer: tuple[str | None, str | None] = ("orders", "1"),
    inner: tuple[str | None, str | None] = ("steps", "1"),
    outer_migration: Migrate | None = None,
    inner_migration: Migrate | None = None,
    policy: CheckpointPolicy = BOUNDARIES,
    names: tuple[str, str] = ("approve", "send"),
    watch: Watch | None = None,
) -> Threads[Doc]:
    """`before`, then `Work` (`approve`, a boundary, then `send`), each graph with its identity."""
    child = Graph(Doc, id=inner[0], version=inner[1])
    for name in names:
        world.trailing(child, name)
    child.edge(*names)
    child.interrupt(names[0])
    graph = Graph(Doc, id=outer[0], version=outer[1])
    world.trailing(graph, "before")
    sub(graph, "Work", child.compile(migration=inner_migration))
    graph.edge("before", "Work")
    return world.threads(graph.compile(checkpoints=policy, migration=outer_migration), telemetry=watch)


def graphs(row: Checkpoint) -> list[GraphIdentity | None]:
    return [level.graph for level in row.levels()]


@pytest.mark.parametrize("policy", POLICIES)
async def test_every_level_carries_its_own_graphs_identity(policy: CheckpointPolicy) -> None:
    """L001, L004."""
    world = World()
    threads = threads_of(world, policy=policy)
    waiting(await threads.run("t", Doc()))
    both: list[GraphIdentity | None] = [GraphIdentity("orders", "1"), GraphIdentity("steps", "1")]
    row = await world.last()
    assert graphs(row) == both
    assert versions(row) == ["1.6.0", "1.6.0"]
    assert isinstance(await threads.end("t"), Cancelled)
    assert graphs(await world.last()) == both


async def test_a_child_without_identity_writes_none() -> None:
    """L002: and a version that there is not stays null."""
    world = World()
    waiting(await threads_of(world, outer=("orders", None), inner=(None, None)).run("t", Doc()))
    row = await world.last()
    assert graphs(row) == [GraphIdentity("orders", None), None]
    assert versions(row) == ["1.6.0", "1.0.0"]


async def test_a_nested_identity_alone_raises_the_outer_rows_version() -> None:
    """Engine.md 6.1: this or any nested level."""
    world = World()
    waiting(await threads_of(world, outer=(None, None)).run("t", Doc()))
    row = await world.last()
    assert graphs(row) == [None, GraphIdentity("steps", "1")]
    assert versions(row) == ["1.6.0", "1.6.0"]


async def test_rows_of_failures_below_carry_it_too() -> None:
    """L003: failed, cancelled and hop-limited ones."""
    world, token = World(), CancelToken()
    child = Graph(Doc, id="steps", version="1")
    world.failing(child, "broken", Fatal("no"))
    world.trailing(child, "never")
    child.edge("broken", "never")
    graph = Graph(Doc, id="orders", version="1")
    sub(graph, "Work", child.compile(max_node_hops=1))
    threads = world.threads(graph.compile())
    failed(await threads.run("t", Doc()))
    failed(await threads.resume("t"))
    assert (await world.last()).nested is not None
    token.fire()
    assert isinstance(await threads.run("t", Doc(), RunOptions(cancellation=token)), Cancelled)
    rows = await world.rows()
    assert [told(row) for row in rows] == [
        "failed:Work>Work / failed:broken>broken",
        "failed:Work>Work / failed:broken>broken",
        "failed:Work>Work / failed:never>never",
        "cancelled:Work>Work",
    ]
    assert all(
        graph in (GraphIdentity("orders", "1"), GraphIdentity("steps", "1"))
        for row in rows
        for graph in graphs(row)
    )


@pytest.mark.parametrize(
    ("inner", "why"),
    [
        (("other", "1"), "version 1, not 'other' version 1"),
        (("steps", "2"), "version 1, not version 2, and this graph has no migration"),
        (("steps", None), "version 1, not unversioned, and this graph has no migration"),
        ((None, None), "version 1, and this graph has no identity"),
    ],
)
async def test_a_nested_level_is_checked_by_its_own_graph(
    inner: tuple[str | None, str | None], why: str
) -> None:
    """L005, L006, L007: nothing is written, and the right graph still takes it on."""
    world = World()
    waiting(await threads_of(world).run("t", Doc()))
    before = await world.entries()
    other = threads_of(world, inner=inner)
    for result in (await other.resume("t"), await other.signal("t", "e"), await other.end("t")):
        message = refused(result, RefusalCode.IDENTITY)
        assert message == f"thread 't' at level [Work] was written by graph 'steps' {why}"
    assert await world.entries() == before
    done(await threads_of(world).resume("t"))


def renaming(seen: list[Checkpoint]) -> Migrate:
    """From a version whose boundary was `approve` to one where it is `review`, which counts in `n`."""

    def migrate(level: Checkpoint) -> Checkpoint:
        seen.append(level)
        state = orjson.loads(level.frozen_state)
        state["n"] = len(state["trail"])
        names = {"approve": "review", "send": "post"}
        return replace(
            level,
            suspended_node=names.get(level.suspended_node or "", level.suspended_node),
            next_node=names.get(level.next_node or "", level.next_node),
            frozen_state=orjson.dumps(state).decode(),
            thread_id="not yours",
            nested=None,
        )

    return migrate


@pytest.mark.parametrize("policy", POLICIES)
async def test_a_nested_level_is_migrated_once_at_its_level(policy: CheckpointPolicy) -> None:
    """L008, L010: state and names, by the old identity; the new row has the new, the old one is untouched."""
    world, seen = World(), list[Checkpoint]()
    waiting(await threads_of(world, policy=policy).run("t", Doc()))
    before = await world.entries()
    newer = threads_of(
        world, inner=("steps", "2"), inner_migration=renaming(seen), policy=policy, names=("review", "post")
    )
    result = done(await newer.resume("t"))
    assert result == Doc(trail=["before", "Work/approve", "Work/post"], n=1)
    assert [level.graph for level in seen] == [GraphIdentity("steps", "1")]
    after = await world.entries()
    assert after[: len(before)] == before
    row = after[len(before)].checkpoint
    assert graphs(row) == [GraphIdentity("orders", "1"), GraphIdentity("steps", "2")]
    assert row.nested is not None
    assert (row.nested.thread_id, row.nested.next_node) == ("Work", "post")


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_outermost_level_is_migrated_and_its_child_left_alone(policy: CheckpointPolicy) -> None:
    """L008: a migration changes its own level only, whatever it returns."""
    world, seen = World(), list[Checkpoint]()
    waiting(await threads_of(world, policy=policy).run("t", Doc()))
    newer = threads_of(world, outer=("orders", "2"), outer_migration=renaming(seen), policy=policy)
    assert done(await newer.resume("t")).trail == ["before", "Work/approve", "Work/send"]
    assert [level.graph for level in seen] == [GraphIdentity("orders", "1")]


@pytest.mark.parametrize("how", ["refuses", "raises"])
async def test_a_migration_that_refuses_leaves_the_thread_as_it_was(how: str) -> None:
    """L009."""
    world = World()
    waiting(await threads_of(world).run("t", Doc()))
    before = await world.entries()

    def migrate(_level: Checkpoint) -> Checkpoint | None:
        if how == "raises":
            raise KeyError("amount")
        return None

    other = threads_of(world, inner=("steps", "2"), inner_migration=migrate)
    message = refused(await other.resume("t"), RefusalCode.IDENTITY)
    assert message.startswith(
        "thread 't' at level [Work] was written by graph 'steps' version 1, not version 2, "
        "and this graph's migration "
    )
    assert message.endswith("refused it" if how == "refuses" else "failed: KeyError: 'amount'")
    assert await world.entries() == before
    done(await threads_of(world).resume("t"))


async def test_a_migration_serves_every_verb() -> None:
    """L010: end, recover and the drivers take a thread on as a resume does."""
    world, seen = World(), list[Checkpoint]()
    with armed(crashing("node.before", 3)), pytest.raises(Crash):
        await threads_of(world, policy=EVERY_NODE).run("t", Doc())
    newer = threads_of(world, outer=("orders", "2"), outer_migration=renaming(seen), policy=EVERY_NODE)
    waiting(await newer.recover("t"))
    assert len(seen) == 1
    newest = threads_of(world, outer=("orders", "3"), outer_migration=renaming(seen), policy=EVERY_NODE)
    assert isinstance(await newest.end("t"), Cancelled)
    assert graphs(await world.last()) == [GraphIdentity("orders", "3"), GraphIdentity("steps", "1")]


async def test_a_row_without_identity_is_taken_on_at_every_level() -> None:
    """L011: and later rows carry it."""
    world = World()
    unnamed = threads_of(world, outer=(None, None), inner=(None, None), policy=EVERY_NODE)
    waiting(await unnamed.run("t", Doc()))
    done(await threads_of(world, policy=EVERY_NODE).resume("t"))
    claim = (await world.rows())[-2]
    assert graphs(claim) == [GraphIdentity("orders", "1"), GraphIdentity("steps", "1")]


@pytest.mark.parametrize(
    ("written", "migrates", "owned"),
    [
        (None, False, True),
        (GraphIdentity("orders", "2"), False, True),
        (GraphIdentity("orders", "1"), False, False),
        (GraphIdentity("orders", "1"), True, True),
        (GraphIdentity("orders", None), True, True),
        (GraphIdentity("bills", "2"), True, False),
    ],
)
async def test_what_a_graph_owns(written: GraphIdentity | None, migrates: bool, owned: bool) -> None:
    """L012."""
    world = World()
    waiting(await threads_of(world).run("t", Doc()))
    row = replace(await world.last(), graph=written)
    graph = threads_of(
        world, outer=("orders", "2"), outer_migration=(lambda level: level) if migrates else None
    ).graph
    assert graph.owns(row) is owned


def sleeper(world: World, version: str, delay: timedelta, migration: Migrate | None = None) -> Threads[Doc]:
    graph = Graph(Doc, id="naps", version=version)
    graph.timer("sleep", delay=delay)
    world.trailing(graph, "rise")
    graph.edge("sleep", "rise")
    return world.threads(graph.compile(checkpoints=EVERY_NODE, migration=migration))


async def test_the_driver_wakes_older_versions_that_it_can_migrate() -> None:
    """L013."""
    world, minute = World(), timedelta(minutes=1)
    old, plain = sleeper(world, "1", minute), sleeper(world, "2", minute)
    migrating = sleeper(world, "2", minute, migration=lambda level: level)
    waiting(await old.run("t", Doc()))
    world.clock.advance(60)
    assert not (await plain.wake_due()).woken
    report = await plain.wake_due(WakeOptions(match_graph=False))
    assert [skip.reason for skip in report.skipped] == [
        "thread 't' was written by graph 'naps' version 1, not version 2, and this graph has no migration"
    ]
    assert [one.thread_id for one in (await migrating.wake_due()).woken] == ["t"]


async def test_the_driver_recovers_older_versions_that_it_can_migrate() -> None:
    world = World()
    with armed(crashing("node.before", 1)), pytest.raises(Crash):
        await threads_of(world, policy=EVERY_NODE).run("t", Doc())
    world.clock.advance(60)
    age = RecoverOptions(stale_after=timedelta(seconds=30))
    plain = threads_of(world, outer=("orders", "2"), policy=EVERY_NODE)
    assert not (await plain.recover_stale(age)).recovered
    migrating = threads_of(
        world, outer=("orders", "2"), outer_migration=lambda level: level, policy=EVERY_NODE
    )
    assert [one.thread_id for one in (await migrating.recover_stale(age)).recovered] == ["t"]


async def test_a_run_tells_which_graph_it_is_of() -> None:
    """L014."""
    world, watch = World(), Watch()
    for identity in (("orders", "1"), (None, None)):
        waiting(await threads_of(world, outer=identity, watch=watch).run("t", Doc()))
    started = [event.kind for event in watch.events if isinstance(event.kind, RunStarted)]
    assert [kind.graph for kind in started] == [GraphIdentity("orders", "1"), None]


async def test_listings_know_the_outermost_graph_only() -> None:
    """L015."""
    world = World()
    waiting(await threads_of(world).run("t", Doc()))
    listed = (await world.memory.list_threads(ThreadQuery(graph_id="orders"))).threads
    assert [one.graph for one in listed] == [GraphIdentity("orders", "1")]
    assert not (await world.memory.list_threads(ThreadQuery(graph_id="steps"))).threads
    with pytest.raises(InvalidRequest, match="graph_version needs a graph_id"):
        await world.memory.list_threads(ThreadQuery(graph_version="1"))


@pytest.mark.parametrize(
    ("identity", "compiling", "message"),
    [
        ({"id": " "}, {}, "graph_id must not be blank"),
        ({"id": "a", "version": " "}, {}, "graph_version must not be blank"),
        ({"version": "1"}, {}, "graph_version needs a graph_id"),
        ({}, {"migration": lambda level: level}, "a migration needs a graph_id"),
    ],
)
def test_identities_that_are_none(identity: dict[str, Any], compiling: dict[str, Any], message: str) -> None:
    """A028."""
    with pytest.raises(CompilationFailed, match=f"^{message}$"):
        World().graph("a", **identity).compile(**compiling)


CALLER = RunOptions(metadata={"tenant": "acme"})


@pytest.mark.parametrize("policy", POLICIES)
async def test_the_callers_metadata_is_on_every_level_and_told_at_every_depth(
    policy: CheckpointPolicy,
) -> None:
    """M001, M004, M006: a resume's own is laid over it; engine keys are the engine's."""
    world = World()
    threads = threads_of(world, policy=policy)
    waiting(await threads.run("t", Doc(), CALLER))
    row = await world.last()
    assert [(level.metadata or {}).get("tenant") for level in row.levels()] == ["acme"] * 2
    done(await threads.resume("t", options=RunOptions(metadata={"tenant": "beta", "by": "bob"})))
    assert [dict(ctx.metadata) for ctx in world.contexts] == [
        {"tenant": "acme"},
        {"tenant": "acme"},
        {"tenant": "beta", "by": "bob"},
    ]


async def test_without_metadata_every_level_says_null() -> None:
    """M002, M005: under Boundaries, and the stamp leaves the old row's alone."""
    world = World()
    threads = threads_of(world)
    waiting(await threads.run("t", Doc()))
    assert [level.metadata for level in (await world.last()).levels()] == [None, None]
    waiting(await threads.run("t", Doc(), CALLER))
    done(await threads.resume("t", options=RunOptions(metadata={"tenant": "beta"})))
    stamp = await world.last()
    assert stamp.resumed_at is not None
    assert [level.metadata for level in stamp.levels()] == [{"tenant": "acme"}] * 2


async def test_failures_below_merge_the_callers_keys_with_the_engines() -> None:
    """M001, M007: resuming hands on the caller's keys only."""
    world, told_of = World(), list[dict[str, str]]()
    child = Graph(Doc)

    @child.node(name="x")
    async def fail(_doc: Doc, ctx: NodeContext) -> None:
        told_of.append(dict(ctx.metadata))
        raise Fatal("no")

    graph = Graph(Doc)
    sub(graph, "Work", child.compile())
    threads = world.threads(graph.compile())
    failed(await threads.run("t", Doc(), CALLER))
    failed(await threads.resume("t"))
    row = await world.last()
    assert row.nested is not None
    assert row.nested.metadata == {
        "tenant": "acme", "error": "no", "error_kind": "fatal", "attempts": "1"
    }  # fmt: skip
    assert told_of == [{"tenant": "acme"}] * 2


async def test_reserved_keys_are_refused_before_any_write() -> None:
    """M003: for a resume too, which leaves no stamp."""
    world = World()
    threads = threads_of(world)
    waiting(await threads.run("t", Doc()))
    before = await world.entries()
    for key, why in (
        ("strata.hops", "run metadata key 'strata.hops' is reserved"),
        ("", "run metadata keys can't be empty"),
    ):
        options = RunOptions(metadata={key: "1"})
        for result in (await threads.run("t", Doc(), options), await threads.resume("t", options=options)):
            assert refused(result, RefusalCode.INVALID) == why
    assert await world.entries() == before


async def test_an_answer_of_a_node_that_a_migration_renames_is_not_lost() -> None:
    """The renamed node would ask again: the resume is refused, and the thread stays as it is."""

    def asking(name: str, version: str, migration: Migrate | None = None) -> Threads[Doc]:
        graph = Graph(Doc, id="asks", version=version)

        @graph.node(name=name)
        async def ask(doc: Doc, ctx: NodeContext) -> None:
            doc.trail += [str(await ctx.interrupt("?", id=id_)) for id_ in ("one", "two")]

        return world.threads(graph.compile(checkpoints=EVERY_NODE, migration=migration))

    def rename(row: Checkpoint) -> Checkpoint:
        return replace(row, suspended_node="renamed", next_node="renamed")

    world = World()
    waiting(await asking("ask", "1").run("t", Doc()))
    waiting(await asking("ask", "1").resume("t", Answer(replies={"one": "x"})))
    before = await world.entries()
    newer = asking("renamed", "2", rename)
    assert "'ask'" in refused(await newer.resume("t", Answer(replies={"two": "y"})), RefusalCode.REPLY)
    assert await world.entries() == before
    assert done(await asking("ask", "1").resume("t", Answer(replies={"two": "y"}))).trail == ["x", "y"]
