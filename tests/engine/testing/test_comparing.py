"""What counts as the same effect in two runs, and what as a difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from outcrop.engine.failpoints import armed
from outcrop.engine.testing import (
    CrashPoint,
    Doubled,
    Effect,
    Effects,
    Execution,
    Lost,
    Repeated,
    Report,
    Trial,
)
from outcrop.engine.testing.comparing import differences, doubled, lost, ran_again, repeated, varying_slots
from outcrop.engine.testing.effects import OUTSIDE

if TYPE_CHECKING:
    from outcrop.stores.record import Json


def effects_of(*asked: tuple[int, str | None]) -> list[Effect]:
    """Requests of effect `pay` at one visit, as (execution, key)."""
    known, requests = set[str](), list[Effect]()
    for number, key in asked:
        requests.append(
            Effect("pay", key, None, key is None or key not in known, Execution(number, "n", "t/n#1"))
        )
        known.add(key or "")
    return requests


@pytest.mark.parametrize(
    ("asked", "keys", "expected"),
    [
        ([(1, "k")], None, 0),
        ([(1, "k"), (2, "k")], None, 0),  # deduplicated
        ([(1, "k1"), (1, "k2")], None, 0),  # two in one execution
        ([(1, "k1"), (2, "k1"), (2, "k2")], None, 0),  # died between the two
        ([(1, "u1"), (2, "u2")], ("u1", "u2"), 1),
        ([(1, "u1"), (2, "u2"), (2, "u3")], ("u1", "u2", "u3"), 2),
        ([(1, None), (2, None)], (None, None), 1),
        ([(1, None), (1, None)], None, 0),
        ([(1, "k"), (2, None)], ("k", None), 1),
    ],
)
def test_doubled(
    asked: list[tuple[int, str | None]], keys: tuple[str | None, ...] | None, expected: int
) -> None:
    found = doubled(effects_of(*asked), [])
    assert found == (() if keys is None else (Doubled("pay", "t/n#1", keys, expected),))


def test_a_run_may_do_what_one_fault_free_execution_does() -> None:
    died = effects_of((1, "a"), (2, "b"))
    assert doubled(died, [])
    assert doubled(died, effects_of((1, "a"), (1, "b"))) == ()


def test_two_visits_are_two_effects() -> None:
    one = Effect("pay", "a", None, applied=True, execution=Execution(1, "n", "t/n#1"))
    other = Effect("pay", "b", None, applied=True, execution=Execution(2, "n", "t/n#2"))
    assert doubled([one, other], []) == ()


def test_what_no_node_asked_for_is_held_against_the_fault_free_run() -> None:
    once, twice = (
        [Effect("pay", key, None, applied=True, execution=OUTSIDE) for key in keys] for keys in ("a", "ab")
    )
    assert doubled(once, once) == doubled(twice, twice) == doubled(once, twice) == ()
    assert doubled(twice, once) == (Doubled("pay", "", ("a", "b"), 1),)


def test_lost() -> None:
    once, never = effects_of((1, "k")), effects_of()
    slot = ("t/n#1", "pay")
    assert lost(never, once, frozenset()) == (Lost("pay", "t/n#1", 0, 1),)
    assert lost(never, once, frozenset({slot})) == ()
    assert lost(once, never, frozenset()) == ()
    assert varying_slots(once, never) == {slot}
    assert varying_slots(once, once) == frozenset()


def test_repeated() -> None:
    assert repeated(effects_of((1, "k"), (2, "k"), (2, "l"), (3, None), (4, None))) == (
        Repeated("pay", "k", 2),
    )


def test_ran_again() -> None:
    once = [Execution(1, "a", "t/a#1"), Execution(2, "b", "t/b#2"), Execution(3, "a", "t/a#3")]
    again = [*once, Execution(4, "b", "t/b#2"), Execution(5, "new", "t/new#4")]
    assert ran_again(again, once) == ("b",)
    assert ran_again(once, once) == ()


@pytest.mark.parametrize(
    ("one", "other", "paths"),
    [
        ({"a": 1}, {"a": 1}, set()),
        ({"a": 1, "b": [1, {"c": 2}]}, {"a": 2, "b": [1, {"c": 3}]}, {"a", "b[1].c"}),
        ({"a": []}, {"a": [1]}, {"a", "a[0]"}),
        ({"a": {}}, {"a": None}, {"a"}),
        (1, 2, {""}),
        (1, True, {""}),
        ([1.0], [1], {"[0]"}),
    ],
)
def test_differences(one: Json, other: Json, paths: set[str]) -> None:
    assert differences(one, other) == paths
    assert differences(other, one) == paths


def test_effects_count_what_a_service_honouring_keys_applies() -> None:
    effects, points = Effects(), list[str]()
    with armed(points.append):
        assert effects.record("k1", "charge", 5)
        assert not effects.record("k1", "charge", 5)
        assert effects.record("k1", "mail")
        assert effects.record(None, "charge")
        assert effects.record(None, "charge")
    assert effects.count("charge") == 3
    assert effects.count("mail") == 1
    assert [effect.applied for effect in effects.requests] == [True, False, True, True, True]
    assert len(effects.applied) == 4
    assert points == ["effect.before", "effect.after"] * 5
    effects.clear()
    assert effects.requests == ()
    assert effects.record("k1", "charge")


def test_the_report_is_readable() -> None:
    trials = [
        Trial(
            point=CrashPoint(number, "node.after", "charge"),
            doubled=(Doubled("charge", "t/charge#1", ("u1", "u2"), 1),),
            lost=(Lost("mail", "t/mail#2", 0, 3),),
            repeated=(Repeated("score", "t/score#1", 2),),
            ran_again=("charge",),
        )
        for number in range(1, 9)
    ]
    trials.append(
        Trial(
            point=CrashPoint(9, "save.before"),
            end="failed",
            expected_end="completed",
            differences=("", "lines[0].price"),
        )
    )
    trials.append(Trial(point=CrashPoint(10, "save.after"), problem="it waits"))
    trials.append(Trial(point=CrashPoint(11, "save.after", "after x"), crashed=False))
    report = Report(
        trials=tuple(trials), faultless=(Doubled("look", "t/x#3", (None, "k"), 1),), varying=("token",)
    )
    points = "\n".join(f"  after a crash at {number}. node.after (charge)" for number in range(1, 7))
    assert (
        str(report)
        == f"""\
11 crash points: 10 broke the run

without any crash, effect 'look' happened twice, not once, at t/x#3
    without a key
    under key k

effect 'charge' happened twice, not once, at t/charge#1
{points}
  and at 2 more
    under key u1
    under key u2

effect 'mail' happened never, not 3 times, at t/mail#2
{points}
  and at 2 more

the thread ended failed, not completed
  after a crash at 9. save.before

the final state differs
  after a crash at 9. save.before

the final state differs at 'lines[0].price'
  after a crash at 9. save.before

the run didn't come to its end: it waits
  after a crash at 10. save.after

ran again after a crash: charge (8)
asked for again under the same key, and not applied again: score (8)
not come to in another run: 11. save.after (after x)
not compared, as two runs without a crash differ there: token"""
    )


def test_a_good_report_is_short() -> None:
    report = Report(trials=(Trial(point=CrashPoint(1, "save.before")),))
    assert str(report) == "1 crash point: none broke the run"
    assert report.is_ok
    report.assert_ok()
