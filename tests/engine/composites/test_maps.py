"""Maps: items, their keys and refusals, and how their children start, fail and wind down."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from outcrop.engine import (
    Cancelled,
    CancelToken,
    Completed,
    Failed,
    FailureKind,
    Fatal,
    Graph,
    NodeContext,
    Retry,
    RunOptions,
    Transient,
)
from outcrop.engine.chunks import ChunkStream
from outcrop.engine.composites import OutcomeStatus, Partial, first_matching, first_success, quorum
from outcrop.engine.metadata import ERROR_KIND, RETRY_AFTER_MS
from support.engine import BOUNDARIES, EVERY_NODE, Doc, World
from support.fan_outs import Watch, gather, settle

if TYPE_CHECKING:
    from outcrop.engine import RunResult, Threads
    from outcrop.engine.composites import Joined

KEEP = Partial.KEEP_SUCCEEDED


class Lines:
    """A graph of one map `m` over the trail it starts with, whose child is `price` then `pack`."""

    def __init__(self, *, hops: int | None = None, streams: bool = False, **options: Any) -> None:
        self.world, self.watch = World(), Watch()
        self.gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self.errors: dict[str, list[Exception]] = {}
        self.contexts: list[NodeContext] = []
        self.stopped: list[str] = []
        self.inputs: list[str] = []
        child: Graph[Doc] = Graph(Doc)

        @child.node(streams=streams)
        async def price(doc: Doc, ctx: NodeContext) -> None:
            self.contexts.append(ctx)
            key = doc.note or ""
            try:
                await self.gates[key].wait()
            except asyncio.CancelledError:
                self.stopped.append(key)
                raise
            if streams and ctx.stream is not None:
                await ctx.stream.emit(key)
            if self.errors.get(key):
                raise self.errors[key].pop(0)

        @child.node
        async def pack(doc: Doc, ctx: NodeContext) -> None:
            self.contexts.append(ctx)
            doc.trail.append(f"{doc.note} packed")

        child.edge(price, pack)
        if "reduce_outcomes" not in options:
            options.setdefault("reduce", gather)
        self.graph: Graph[Doc] = Graph(Doc)
        options = {"items": lambda doc: doc.trail, "key": str, "input": self._input, **options}
        self.graph.map("m", child.compile(max_node_hops=hops), **options)

    def _input(self, _doc: Doc, item: str) -> Doc:
        self.inputs.append(item)
        return Doc(note=item)

    def threads(self, **compiling: Any) -> Threads[Doc]:
        compiled = self.graph.compile(**{"checkpoints": EVERY_NODE, **compiling})
        return self.world.threads(compiled, telemetry=self.watch)

    async def run(self, items: str, order: str = "", options: RunOptions | None = None) -> RunResult[Doc]:
        """Run a map over items of one letter, opening their gates in this order."""
        task = asyncio.create_task(self.threads().run("t", Doc(trail=list(items)), options or RunOptions()))
        for key in order:
            await settle()
            self.gates[key].set()
        return await task

    @property
    def started(self) -> list[str]:
        return [ctx.node_path for ctx in self.contexts]


def packed(items: str, done: str) -> list[str]:
    return [*items, *(f"{key} packed" for key in done)]


def trail(result: object) -> list[str]:
    assert isinstance(result, Completed), result
    assert isinstance(result.state, Doc)
    return result.state.trail


def failed(result: object) -> Failed:
    assert isinstance(result, Failed), result
    return result


async def metadata_of(lines: Lines) -> dict[str, str]:
    return dict((await lines.world.last()).metadata or {})


async def test_an_empty_list_reduces_with_none() -> None:
    """O001: the join is met."""
    joined = list[Any]()
    lines = Lines(reduce_outcomes=lambda _, outcomes: joined.append(outcomes))
    assert trail(await lines.run("")) == []
    assert (joined[0].join_met, joined[0].outcomes) == (True, ())
    assert lines.watch.told() == ["node m", "map m []", "done m Committed"]


async def test_one_item_tells_its_childs_nodes_inside() -> None:
    """O002."""
    lines = Lines()
    assert trail(await lines.run("a", "a")) == packed("a", "a")
    assert lines.watch.told() == [
        "node m",
        "map m ['a']",
        "start m/a",
        "node m/a/price",
        "done m/a/price Committed",
        "node m/a/pack",
        "done m/a/pack Committed",
        "end m/a Succeeded",
        "done m Committed",
    ]


async def test_items_start_and_are_reduced_in_list_order_under_the_limit() -> None:
    """O002, O003; `input` is called when the item starts."""
    lines = Lines(max_concurrency=2)
    task = asyncio.create_task(lines.run("abc", "bac"))
    await settle()
    assert lines.inputs == ["a", "b"]
    assert trail(await task) == packed("abc", "abc")
    assert lines.inputs == ["a", "b", "c"]


async def test_eight_items_run_at_once_unless_told_otherwise() -> None:
    """O002."""
    lines = Lines()
    task = asyncio.create_task(lines.run("abcdefghij"))
    await settle()
    assert lines.inputs == list("abcdefgh")
    for key in "abcdefghij":
        lines.gates[key].set()
    await task


@pytest.mark.parametrize(
    ("items", "options", "message"),
    [
        ("aba", {}, "map 'm': items 0 and 2 have the same key 'a'"),
        ("ab", {"key": lambda _: ""}, "map 'm': item 0 has an empty key"),
        ("ab/", {}, "map 'm': item 2 has the key '/', which contains '/'"),
        ("abc", {"max_items": 2}, "map 'm' has 3 items, more than its limit of 2"),
        ("a", {"key": lambda _: 7}, "map 'm': item 0 has a key that is no text, but int"),
    ],
)
async def test_items_that_cannot_be_told_apart_fail_the_map_at_once(
    items: str, options: dict[str, Any], message: str
) -> None:
    """O004: fatal, one attempt, nothing started, no MapExpanded."""
    lines = Lines(retry=Retry(max_retries=3), **options)
    result = failed(await lines.run(items))
    assert (result.message, result.attempts) == (message, 1)
    assert lines.inputs == []
    assert lines.watch.told() == ["node m", "done m Failed"]


async def test_outcomes_and_the_texts_of_failed_items() -> None:
    """O005."""
    joined = list[Any]()
    lines = Lines(reduce_outcomes=lambda _, outcomes: joined.append(outcomes), partial=KEEP)
    lines.errors = {"b": [Transient("busy")]}
    await lines.run("ab", "ba")
    assert [(one.name, one.status, one.error) for one in joined[0].outcomes] == [
        ("a", OutcomeStatus.SUCCEEDED, None),
        ("b", OutcomeStatus.FAILED, "failed at 'price' after 1 attempt(s): busy"),
    ]
    assert joined[0].outcomes[0].state.trail == ["a packed"]


async def test_a_transient_child_makes_the_map_transient_with_its_hint() -> None:
    """O005: no row of it is nested."""
    lines = Lines()
    lines.errors = {"b": [Transient("busy", retry_after=4)]}
    result = failed(await lines.run("ab", "b"))
    assert result.message == "item 'b': failed at 'price' after 1 attempt(s): busy"
    metadata = await metadata_of(lines)
    assert (metadata[ERROR_KIND], metadata[RETRY_AFTER_MS]) == ("transient", "4000")
    assert (await lines.world.last()).nested is None


async def test_a_failing_item_winds_its_siblings_down() -> None:
    """O006: the child stops before the item is reported, and that before the map."""
    lines = Lines()
    lines.errors = {"b": [Fatal("no")]}
    await lines.run("ab", "b")
    assert lines.stopped == ["a"]
    assert lines.watch.told()[-5:] == [
        "done m/b/price Failed",
        "end m/b Failed",
        "done m/a/price Cancelled",
        "end m/a Cancelled SiblingFailed",
        "done m Failed",
    ]


async def test_an_items_timeout_is_its_own() -> None:
    """O007: its child is cancelled first."""
    joined = list[Any]()
    lines = Lines(reduce_outcomes=lambda _, outcomes: joined.append(outcomes), partial=KEEP, item_timeout=2.5)
    lines.gates["a"].set()
    task = asyncio.create_task(lines.run("ab"))
    await settle()
    lines.world.clock.advance(2.5)
    assert isinstance(await task, Completed)
    outcomes = [(one.status, one.error) for one in joined[0].outcomes]
    assert outcomes == [("Succeeded", None), ("TimedOut", "item 'b' timed out after 2500 ms")]
    assert lines.watch.told()[-3:] == [
        "done m/b/price Cancelled",
        "end m/b Failed TimedOut",
        "done m Committed",
    ]


async def test_losers_of_a_race_wind_down_after_the_decision() -> None:
    """O008."""
    lines = Lines(join=first_success())
    assert trail(await lines.run("abc", "b")) == packed("abc", "b")
    assert lines.watch.told()[-7:] == [
        "end m/b Succeeded",
        "join m first_success met ['b']",
        "done m/a/price Cancelled",
        "done m/c/price Cancelled",
        "end m/a Cancelled LostRace",
        "end m/c Cancelled LostRace",
        "done m Committed",
    ]


@pytest.mark.parametrize(
    ("join", "message"),
    [
        (first_success(), "no items to run"),
        (first_matching(lambda _: True), "no item matched the join (0 succeeded)"),
        (quorum(2), "quorum of 2 not reached: 0 of 0 items succeeded"),
    ],
)
async def test_an_empty_race_fails_for_good(join: Any, message: str) -> None:
    """O008."""
    lines = Lines(join=join, retry=Retry(max_retries=2))
    result = failed(await lines.run(""))
    assert (result.message, result.attempts) == (message, 1)


async def test_a_map_in_a_subgraph_streams_and_names_its_paths_below_it() -> None:
    """O009."""
    lines = Lines(streams=True)
    lines.gates["a"].set()
    parent: Graph[Doc] = Graph(Doc)
    parent.subgraph("Work", lines.graph.compile(), input=lambda doc: doc, output=lambda _, child: child)
    threads = lines.world.threads(parent.compile(checkpoints=EVERY_NODE), telemetry=lines.watch)
    chunks = ChunkStream()
    await threads.run("t", Doc(trail=["a"]), RunOptions(stream=chunks))
    assert lines.started == ["Work/m/a/price", "Work/m/a/pack"]
    assert [ctx.idempotency_key for ctx in lines.contexts] == [
        "t/Work/m/a/price#1.1.1",
        "t/Work/m/a/pack#1.1.2",
    ]
    told = [(chunk.type.value, chunk.node_name) async for chunk in chunks]
    assert ("Token", "Work/m/a/price") in told
    assert ("NodeStart", "Work/m") in told
    assert "map Work/m ['a']" in lines.watch.told()


async def test_a_plain_run_of_a_streaming_map_is_refused_before_its_items_are_read() -> None:
    """O009."""
    read = list[int]()

    def items(_doc: Doc) -> list[str]:
        read.append(1)
        return ["a"]

    lines = Lines(streams=True, items=items)
    result = failed(await lines.run("a"))
    assert result.kind is FailureKind.ABORTED
    assert read == []


async def test_a_retried_map_runs_every_item_again() -> None:
    """O010: MapExpanded once for each attempt."""
    lines = Lines(retry=Retry(max_retries=1))
    lines.errors = {"b": [Transient("busy")]}
    assert trail(await lines.run("ab", "ab")) == packed("ab", "ab")
    assert lines.inputs == ["a", "b", "a", "b"]
    assert lines.watch.told().count("map m ['a', 'b']") == 2
    assert {ctx.idempotency_key for ctx in lines.contexts if ctx.node == "price"} == {
        "t/m/a/price#1.1",
        "t/m/b/price#1.1",
    }


async def test_a_cancelled_map_winds_down_and_nests_nothing() -> None:
    """O010."""
    lines, token = Lines(), CancelToken()
    task = asyncio.create_task(lines.run("ab", options=RunOptions(cancellation=token)))
    await settle()
    token.fire()
    assert isinstance(await task, Cancelled)
    assert lines.stopped == ["a", "b"]
    assert (await lines.world.log())[-1] == "cancelled:m>m"
    assert lines.watch.told()[-3:] == ["end m/a Cancelled", "end m/b Cancelled", "done m Cancelled"]


async def test_a_map_is_one_hop_and_its_items_count_their_own() -> None:
    """O011, I003: one row for the map; the child's own limit fails an item."""
    lines = Lines(hops=1)
    result = failed(await lines.run("a", "a"))
    limit = "hop limit of 1 reached: node 'pack' would be hop 2"
    assert result.message == f"item 'a': hit its hop limit: {limit}"
    hit = [event for event in lines.watch.events if type(event.kind).__name__ == "HopLimitExceeded"]
    assert [event.node_path for event in hit] == ["m/a/pack"]
    assert await lines.world.log() == ["running:->m", "failed:m>m"]


async def test_items_have_keys_of_their_own_in_a_run_without_rows() -> None:
    """I002, I003."""
    lines = Lines()
    lines.gates["a"].set()
    options = RunOptions(run_id="r1")
    await lines.threads(checkpoints=BOUNDARIES).run("t", Doc(trail=["a"]), options)
    assert [ctx.idempotency_key for ctx in lines.contexts] == ["t/m/a/price#1.1@r1", "t/m/a/pack#1.2@r1"]


@pytest.mark.parametrize("what", ["items", "key", "reduce"])
async def test_what_the_author_raises_fails_the_map(what: str) -> None:
    def broken(*_: object) -> Any:
        raise KeyError(what)

    options: dict[str, Any] = {what: broken}
    lines = Lines(**options)
    lines.gates["a"].set()
    assert failed(await lines.run("a")).message == f"KeyError: '{what}'"


async def test_an_input_that_raises_fails_its_item() -> None:
    def broken(_doc: Doc, item: str) -> Doc:
        if item == "b":
            raise ValueError("no b")
        return Doc(note=item)

    lines = Lines(input=broken, partial=KEEP)
    assert trail(await lines.run("ab", "a")) == packed("ab", "a")
    assert lines.watch.ends()["m/b"].error == "ValueError: no b"


async def test_an_item_cannot_ask() -> None:
    """A question inside an item is a fatal failure of its node."""
    child: Graph[Doc] = Graph(Doc)

    @child.node
    async def ask(_doc: Doc, ctx: NodeContext) -> None:
        await ctx.interrupt("who?")

    def reduce(entry: Doc, joined: Joined[Doc]) -> None:
        entry.note = joined.outcomes[0].error

    graph: Graph[Doc] = Graph(Doc)
    graph.map(
        "m", child.compile(), items=lambda _: ["a"], key=str, input=lambda doc, _: doc, reduce_outcomes=reduce
    )
    result = failed(await World().threads(graph.compile()).run("t", Doc()))
    assert "node 'm/a/ask' of thread 't' can't ask here" in result.message


async def test_a_map_in_an_item_winds_down_with_it() -> None:
    """Maps nest; a dropped run ends all of their tasks."""
    lines = Lines()
    outer: Graph[Doc] = Graph(Doc)
    outer.map(
        "o",
        lines.graph.compile(),
        items=lambda _: ["x", "y"],
        key=str,
        input=lambda _, item: Doc(trail=[f"{item}1", f"{item}2"]),
        reduce=gather,
    )
    task = asyncio.create_task(lines.world.threads(outer.compile()).run("t", Doc()))
    await settle()
    assert sorted(lines.started) == [f"o/{x}/m/{x}{n}/price" for x in "xy" for n in "12"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(lines.stopped) == 4
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]


async def test_a_panic_in_an_item_ends_the_run_once_the_others_wound_down() -> None:
    class Panic(BaseException):
        pass

    def broken(_doc: Doc, item: str) -> Doc:
        if item == "b":
            raise Panic
        return Doc(note=item)

    lines = Lines(input=broken, retry=Retry(max_retries=3), max_concurrency=2)
    with pytest.raises(Panic):
        await lines.run("abc")
    assert lines.started == ["m/a/price"]
    assert lines.watch.ends()["m/a"].reason == "SiblingFailed"
    assert not [one for one in asyncio.all_tasks() if one is not asyncio.current_task()]
