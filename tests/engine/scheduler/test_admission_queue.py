"""The queue against a naive model that is written from the specification's words."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outcrop.engine.admission_queue import AdmissionQueue, Entry, NotAdmittedReason

if TYPE_CHECKING:
    from collections.abc import Sequence

Step = tuple[str, int, str | None]  # what happens; a priority, a limit or whom it meets; a tenant


@dataclass(frozen=True)
class Setting:
    max_concurrent: int = 2
    max_queued: int = 2
    reservations: tuple[tuple[int, int], ...] = ()
    tenant_limit: int | None = None
    tenant_limits: tuple[tuple[str, int], ...] = ()
    tenant_max_queued: int | None = None
    fair: bool = False


@dataclass
class Naive:
    """All runs that ever came, each `(priority, tenant)`, with what became of it."""

    setting: Setting
    own_limits: dict[str, int] = field(default_factory=dict[str, int])
    runs: list[tuple[int, str | None]] = field(default_factory=list[tuple[int, "str | None"]])
    fate: list[str] = field(default_factory=list[str])
    admitted_tenants: list[str | None] = field(default_factory=list["str | None"])
    closed: bool = False

    def numbers(self, fate: str) -> list[int]:
        return [number for number, one in enumerate(self.fate) if one == fate]

    def count(self, fate: str, tenant: str | None) -> int:
        return sum(self.runs[number][1] == tenant for number in self.numbers(fate))

    def best_first(self) -> list[int]:
        def order(number: int) -> tuple[int, int, int, int]:
            priority, tenant = self.runs[number]
            if not self.setting.fair:
                return (-priority, 0, 0, number)
            history = self.admitted_tenants
            last = len(history) - history[::-1].index(tenant) if tenant in history else 0
            return (-priority, self.count("active", tenant), last, number)

        return sorted(self.numbers("waiting"), key=order)

    def may_work(self, number: int) -> bool:
        priority, tenant = self.runs[number]
        kept = sum(slots for least, slots in self.setting.reservations if least > priority)
        if len(self.numbers("active")) >= self.setting.max_concurrent - kept:
            return False
        limit = None if tenant is None else self.own_limits.get(tenant, self.setting.tenant_limit)
        return limit is None or self.count("active", tenant) < limit

    def settle(self) -> None:
        while able := [number for number in self.best_first() if self.may_work(number)]:
            self.fate[able[0]] = "active"
            self.admitted_tenants.append(self.runs[able[0]][1])
        while self.admitted_tenants:  # whoever is idle, and was before all others, is as good as new
            oldest = min(
                set(self.admitted_tenants), key=lambda one: self.admitted_tenants[::-1].index(one) * -1
            )
            if self.count("active", oldest) or self.count("waiting", oldest):
                break
            self.admitted_tenants = [one for one in self.admitted_tenants if one != oldest]

    def come(self, priority: int, tenant: str | None) -> None:
        self.runs.append((priority, tenant))
        self.fate.append("closed" if self.closed else "waiting")
        self.settle()
        newcomer = len(self.runs) - 1
        if self.fate[newcomer] != "waiting":
            return
        most = self.setting.tenant_max_queued
        if tenant is not None and most is not None and self.count("waiting", tenant) > most:
            self.fate[newcomer] = "queue_full"
        elif len(self.numbers("waiting")) > self.setting.max_queued:
            lowest = min(self.runs[number][0] for number in self.numbers("waiting"))
            last = max(number for number in self.numbers("waiting") if self.runs[number][0] == lowest)
            self.fate[last] = "queue_full" if last == newcomer else "shed"


def replay(setting: Setting, steps: Sequence[Step]) -> None:
    """Take both through the steps, and compare what became of every run after each of them."""
    queue = AdmissionQueue(
        max_concurrent=setting.max_concurrent,
        max_queued=setting.max_queued,
        reservations=dict(setting.reservations),
        tenant_limit=setting.tenant_limit,
        tenant_limits=dict(setting.tenant_limits),
        tenant_max_queued=setting.tenant_max_queued,
        fair=setting.fair,
    )
    naive = Naive(setting, dict(setting.tenant_limits))
    entries = list[Entry]()
    told = list[list[NotAdmittedReason | None]]()
    for what, number, tenant in steps:
        if what == "come":
            told.append([])
            entries.append(Entry(number, tenant, told[-1].append))
            queue.enter(entries[-1])
            naive.come(number, tenant)
        elif what == "limit":
            queue.set_tenant_limit(tenant or "a", None if number < 0 else number)
            naive.own_limits[tenant or "a"] = number
            if number < 0:
                del naive.own_limits[tenant or "a"]
        elif what == "close":
            queue.close()
            naive.closed = True
            naive.fate = ["closed" if fate == "waiting" else fate for fate in naive.fate]
        elif at_hand := [
            one for one, fate in enumerate(naive.fate) if fate in _AT_HAND or what == "drop any"
        ]:
            _end_one(queue, naive, entries, what, at_hand[number % len(at_hand)])
        naive.settle()
        _compare(queue, naive, entries, told)


def _end_one(queue: AdmissionQueue, naive: Naive, entries: list[Entry], what: str, number: int) -> None:
    """`time out` a wait, or `drop` whatever the run has."""
    if what == "time out":
        queue.refuse(entries[number], NotAdmittedReason.QUEUE_TIMEOUT)
        if naive.fate[number] == "waiting":
            naive.fate[number] = "queue_timeout"
    else:
        queue.drop(entries[number])
        naive.fate[number] = {"waiting": "withdrawn", "active": "done"}.get(
            naive.fate[number], naive.fate[number]
        )


def _compare(
    queue: AdmissionQueue, naive: Naive, entries: list[Entry], told: list[list[NotAdmittedReason | None]]
) -> None:
    for entry, answers, fate in zip(entries, told, naive.fate, strict=True):
        assert entry.is_active == (fate == "active")
        assert entry.is_waiting == (fate == "waiting")
        if fate in {"active", "done"}:
            assert answers == [None]
        elif fate in {"waiting", "withdrawn"}:
            assert answers == []
        else:
            assert answers == [NotAdmittedReason(fate)]
    assert queue.active == len(naive.numbers("active")) <= naive.setting.max_concurrent
    assert queue.queued == len(naive.numbers("waiting")) <= naive.setting.max_queued
    at_hand = [tenant for number, (_, tenant) in enumerate(naive.runs) if naive.fate[number] in _AT_HAND]
    assert queue.tenants() == sorted({one for one in at_hand if one is not None} | naive.own_limits.keys())
    for tenant in queue.tenants():
        assert queue.active_of(tenant) == naive.count("active", tenant)
        assert queue.queued_of(tenant) == naive.count("waiting", tenant)


_AT_HAND = {"active", "waiting"}
_TENANTS = st.sampled_from([None, "a", "b", "c"])
_COMING = st.tuples(st.just("come"), st.integers(0, 2), _TENANTS)
_STEPS = st.lists(
    st.one_of(
        _COMING,
        _COMING,
        st.tuples(st.sampled_from(["drop", "drop", "drop any", "time out"]), st.integers(0, 30), st.none()),
        st.tuples(st.just("limit"), st.integers(-1, 2), st.sampled_from(["a", "b"])),
    ),
    min_size=12,
    max_size=40,
)
_LIMIT = st.none() | st.integers(0, 2)
_SETTINGS = st.builds(
    Setting,
    max_concurrent=st.integers(3, 5),
    max_queued=st.integers(0, 8),
    reservations=st.sampled_from([(), ((1, 1),), ((2, 1), (1, 1)), ((2, 2),)]),
    tenant_limit=_LIMIT,
    tenant_limits=st.sampled_from([(), (("a", 1),), (("b", 0), ("c", 3))]),
    tenant_max_queued=_LIMIT,
    fair=st.booleans(),
)


@settings(max_examples=300, deadline=None)
@given(_SETTINGS, _STEPS)
def test_any_course_of_events_goes_as_the_model_says(setting: Setting, steps: list[Step]) -> None:
    """S001: order, priority, reservation, tenant, shed and close, all at once."""
    replay(setting, [*steps, ("close", 0, None), ("come", 0, "a"), ("drop", 0, None)])


_ONE_PRIORITY = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.just(0), st.sampled_from(["a", "b", "c"])),
        st.tuples(st.just("drop"), st.integers(0, 5), st.none()),
        st.tuples(st.just("limit"), st.sampled_from([-1, 0]), st.sampled_from(["a", "b"])),
    ),
    min_size=12,
    max_size=30,
)


@settings(max_examples=400, deadline=None)
@given(
    st.builds(Setting, max_concurrent=st.integers(2, 4), max_queued=st.just(8), fair=st.just(True)),
    _ONE_PRIORITY,
)
def test_tenants_of_one_priority_take_turns_as_the_model_says(setting: Setting, steps: list[Step]) -> None:
    """With tenants paused for a while, who were served last and are not forgotten for it."""
    replay(setting, steps)


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize(
    "setting",
    [
        {"max_concurrent": 1},
        {"max_concurrent": 2, "reservations": ((1, 1),)},
        {"max_concurrent": 2, "tenant_limit": 1, "max_queued": 1},
        {"max_concurrent": 1, "tenant_max_queued": 1, "max_queued": 3},
    ],
)
def test_every_short_course_of_events_goes_as_the_model_says(setting: dict[str, int], fair: bool) -> None:
    """S001: all courses of five steps."""
    steps: list[Step] = [
        ("come", 0, "a"),
        ("come", 0, "b"),
        ("come", 1, "a"),
        ("drop any", 0, None),
        ("drop any", 1, None),
    ]
    for course in itertools.product(steps, repeat=5):
        replay(Setting(**setting, fair=fair), course)  # type: ignore[arg-type]  # a case's own fields


def test_tenants_that_come_and_go_leave_nothing_behind() -> None:
    queue = AdmissionQueue(
        max_concurrent=2,
        max_queued=2,
        reservations={},
        tenant_limit=1,
        tenant_limits={},
        tenant_max_queued=None,
        fair=True,
    )
    for number in range(100):
        entry = Entry(0, f"tenant {number}", lambda _: None)
        queue.enter(entry)
        queue.drop(entry)
    assert queue.tenants() == []
    assert not queue._last_admitted
    assert not queue._active_of
    assert not queue._queued_of
