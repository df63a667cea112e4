"""What can be a node, and how it is called (engine-cases B004, B012 as far as building goes)."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import pytest

from outcrop.engine import CompilationFailed, Graph, NodeContext, Retry
from outcrop.engine.node import NodeMode

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator

    from outcrop.engine.node import NodeSpec


@dataclass
class Order:
    amount: int


CONTEXT = NodeContext(thread_id="t", node="n", node_path="n")


def spec_of(graph: Graph[Order], name: str) -> NodeSpec[Order]:
    return graph.compile().nodes[name]


def test_decorator_returns_the_function_itself() -> None:
    graph = Graph(Order)

    def bare(order: Order) -> None:
        order.amount += 1

    def with_options(order: Order) -> None:
        order.amount += 2

    assert graph.node(bare) is bare
    assert graph.node(retry=Retry(max_retries=1))(with_options) is with_options
    assert list(graph._places) == ["bare", "with_options"]


def test_options_reach_the_node() -> None:
    graph = Graph(Order)
    policy = Retry(max_retries=3)

    @graph.node(name="charge", retry=policy, timeout=20.0, fallback="charge", inline=False)
    async def work(order: Order) -> None: ...

    spec = spec_of(graph, "charge")
    assert (spec.name, spec.retry, spec.timeout, spec.fallback) == ("charge", policy, 20.0, "charge")


def test_one_decorator_adds_several_nodes() -> None:
    graph = Graph(Order)
    careful = graph.node(retry=Retry(max_retries=3))

    @careful
    def first(order: Order) -> None: ...

    @careful
    def second(order: Order) -> None: ...

    graph.edge(first, second)
    assert spec_of(graph, "second").retry.max_retries == 3


async def test_async_handlers_are_awaited_with_or_without_context() -> None:
    graph = Graph(Order)

    @graph.node
    async def alone(order: Order) -> None:
        order.amount += 1

    @graph.node
    async def with_context(order: Order, ctx: NodeContext) -> Order:
        return Order(amount=order.amount + len(ctx.thread_id))

    graph.edge(alone, with_context)
    compiled = graph.compile()
    order = Order(amount=1)
    assert [spec.mode for spec in compiled.nodes.values()] == [NodeMode.ASYNC, NodeMode.ASYNC]
    assert await cast("Awaitable[Order | None]", compiled.nodes["alone"].handler(order, CONTEXT)) is None
    result = await cast("Awaitable[Order | None]", compiled.nodes["with_context"].handler(order, CONTEXT))
    assert (order, result) == (Order(2), Order(3))


def test_sync_handlers_run_on_threads_or_inline() -> None:
    graph = Graph(Order)

    @graph.node
    def pooled(order: Order) -> Order:
        return Order(order.amount + 1)

    @graph.node(inline=True)
    def inline(order: Order, ctx: NodeContext) -> Order:
        return Order(order.amount + ctx.attempt)

    graph.edge(pooled, inline)
    compiled = graph.compile()
    assert (compiled.nodes["pooled"].mode, compiled.nodes["inline"].mode) == (
        NodeMode.THREAD,
        NodeMode.INLINE,
    )
    assert compiled.nodes["pooled"].handler(Order(1), CONTEXT) == Order(2)
    assert compiled.nodes["inline"].handler(Order(1), CONTEXT) == Order(2)


class Charge:
    """A node as an object, with what it needs inside."""

    def __init__(self, fee: int) -> None:
        self.fee = fee

    async def __call__(self, order: Order, ctx: NodeContext) -> None:
        order.amount += self.fee * ctx.attempt

    def check(self, order: Order) -> None:
        order.amount += self.fee


def test_callable_objects_partials_and_methods_are_nodes() -> None:
    graph = Graph(Order)
    charge = Charge(fee=2)

    def add_to(amount: int, order: Order) -> None:
        order.amount += amount

    five = functools.partial(add_to, 5)
    graph.node(name="charge")(charge)
    graph.node(charge.check)
    graph.node(name="five")(five)
    graph.edge(charge, charge.check)
    graph.edge(charge.check, five)
    compiled = graph.compile()
    order = Order(1)
    compiled.nodes["check"].handler(order, CONTEXT)
    compiled.nodes["five"].handler(order, CONTEXT)
    assert order == Order(8)
    assert compiled.nodes["charge"].mode is NodeMode.ASYNC


def test_defaults_and_star_arguments_decide_about_the_context() -> None:
    graph = Graph(Order)
    seen: list[object] = []

    @graph.node
    def optional(order: Order, ctx: NodeContext | None = None) -> None:
        seen.append(ctx)

    @graph.node
    def star(*arguments: object) -> None:
        seen.append(arguments[1])

    @graph.node
    def keyword(order: Order, *, fee: int = 3) -> None:
        seen.append(fee)

    graph.edge(optional, star)
    graph.edge(star, keyword)
    for spec in graph.compile().nodes.values():
        spec.handler(Order(1), CONTEXT)
    assert seen == [CONTEXT, CONTEXT, 3]


def nothing() -> None: ...


def three(_order: Order, _ctx: NodeContext, _more: int) -> None: ...


def demanding(_order: Order, *, fee: int) -> None: ...


@pytest.mark.parametrize("function", [nothing, three, demanding])
def test_other_signatures_are_refused_at_once(function: Any) -> None:
    with pytest.raises(CompilationFailed, match=r"is called with \(state\) or \(state, context\)"):
        Graph(Order).node(function)


def test_generators_are_refused() -> None:
    """They would return without having run a line."""

    def stepwise(order: Order) -> Iterator[Order]:
        yield order

    untyped: Any = stepwise
    with pytest.raises(CompilationFailed, match="generator"):
        Graph(Order).node(untyped)


def test_async_node_can_t_be_inline() -> None:
    async def work(order: Order) -> None: ...

    with pytest.raises(CompilationFailed, match="node 'work' is async and can't run inline"):
        Graph(Order).node(inline=True)(work)


def test_nameless_callable_needs_a_name() -> None:
    with pytest.raises(CompilationFailed, match="needs a name"):
        Graph(Order).node(Charge(1))
    with pytest.raises(CompilationFailed, match="needs a name"):
        Graph(Order).node(lambda order: order)


def test_unknown_option_is_refused() -> None:
    untyped: Any = Graph(Order).node
    with pytest.raises(TypeError, match="retries"):
        untyped(retries=3)


def test_edges_find_functions_by_the_name_they_were_added_under() -> None:
    graph = Graph(Order)

    @graph.node(name="first")
    def one(order: Order) -> None: ...

    @graph.node
    def two(order: Order) -> None: ...

    graph.edge(one, two)
    assert [edge.to for edge in graph.compile().edges["first"]] == ["two"]


def test_function_that_is_no_node_is_refused() -> None:
    with pytest.raises(CompilationFailed, match="'nothing' is not a node of this graph"):
        Graph(Order).edge(nothing, "a")


def test_function_that_is_two_nodes_must_be_named() -> None:
    graph = Graph(Order)

    def work(order: Order) -> None: ...

    graph.node(name="a")(work)
    graph.node(name="b")(work)
    with pytest.raises(CompilationFailed, match="more than one node"):
        graph.entry(work)


def test_async_condition_is_refused() -> None:
    """Its coroutine would be true whatever it says."""

    async def when(order: Order) -> bool:
        return order.amount > 1

    untyped: Any = when
    with pytest.raises(CompilationFailed, match="from 'a' to 'b' has an async condition"):
        Graph(Order).edge("a", "b", when=untyped)


def test_service_by_type() -> None:
    """T002 as far as it applies: a node is handed the run's services, or told there is none."""
    context = NodeContext(thread_id="t", node="n", node_path="n", services={Charge: Charge(7)})
    assert context.service(Charge).fee == 7
    with pytest.raises(LookupError, match="node 'n' of thread 't' asks for a Order"):
        context.service(Order)


def test_hand_built_context() -> None:
    """T003, M006: what a context has when nobody ran it."""
    assert (CONTEXT.attempt, CONTEXT.run_id, CONTEXT.idempotency_key, CONTEXT.is_recovery) == (
        1,
        "",
        "",
        False,
    )
    assert (dict(CONTEXT.metadata), CONTEXT.decision, CONTEXT.last_failure) == ({}, None, None)
    assert not CONTEXT.cancellation.fired
