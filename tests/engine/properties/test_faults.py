"""Random graphs through random faults: they end as without any, and nothing runs or is left twice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from support.generated import Child, Model, plans
from support.played import Faults, Play, faults

if TYPE_CHECKING:
    from support.generated import Plan


@settings(derandomize=True, deadline=None, max_examples=80)
@given(plan=plans())
def test_without_faults_a_run_is_what_its_plan_says(plan: Plan) -> None:
    Play(plan, Faults()).run().check(Model(plan))


@settings(derandomize=True, deadline=None, max_examples=400)
@given(plan=plans(), faults=faults())
def test_faults_change_nothing_but_the_number_of_attempts(plan: Plan, faults: Faults) -> None:
    Play(plan, faults).run().check(Model(plan))


@settings(derandomize=True, deadline=None, max_examples=500)
@given(body=plans(), faults=faults(), at=st.integers(2, 12))
def test_a_child_that_begins_again_changes_nothing_either(body: Plan, faults: Faults, at: int) -> None:
    plan: Plan = (Child(body),)
    starts = {**faults.starts, at: "is given up"}
    Play(plan, replace(faults, starts=starts)).run().check(Model(plan))
