"""Questions that a node asks while it runs, and the answers it already has.

Owns what an attempt may ask and the JSON of both in notes; whether an answer fits a question
is decided here too. A question stops the attempt: `Asked` passes through the node's own
`except Exception`, and the attempt is over even if the node swallows it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import orjson

from outcrop.stores.record import Note, NoteKind

from .composites import Group, Subgraph
from .errors import Fatal, StateError
from .state import json_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from outcrop.stores.record import Json

    from .compiled import CompiledGraph


ONLY_QUESTION = ""
"""In place of an ID: the question that is open, if it is the only one."""


class Asked(BaseException):
    """The attempt can't go on without an answer; no error, and none of the node's business."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What the node at `path` asks, as its `position`-th question (from 0) of this visit."""

    path: str
    id: str
    position: int
    payload: Json


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that a node has been given."""

    id: str
    value: Json


class Questions:
    """What one attempt at `path` asks; `answered` are the answers it has, in order.

    `visit` makes default IDs unique in the thread's life: the execution's idempotency key.
    """

    def __init__(self, path: str, visit: str, answered: tuple[Reply, ...]) -> None:
        self._path = path
        self._visit = visit
        self._answered = answered
        self._ids: list[str] = []
        self.pending: list[Question] = []

    def ask(self, payload: Json, id_: str | None) -> Json:
        """The answer to the next question, or `Asked`."""
        position, given = len(self._ids), id_
        id_ = given or f"{self._visit}?{position}"
        if id_ in self._ids:
            raise Fatal(f"node '{self._path}' asks question '{id_}' twice: give each its own id")
        self._ids.append(id_)
        if position < len(self._answered):
            reply = self._answered[position]
            if given and given != reply.id:
                raise Fatal(
                    f"node '{self._path}' asks question '{given}' where it had its answer to '{reply.id}': "
                    "its questions must come in the same order every time"
                )
            return reply.value
        try:
            shown = cast("Json", orjson.loads(orjson.dumps(payload)))
        except (TypeError, ValueError) as error:
            raise Fatal(f"node '{self._path}' asks with a payload that isn't JSON: {error}") from None
        self.pending.append(Question(path=self._path, id=id_, position=position, payload=shown))
        raise Asked


def asked_twice(asked: Iterable[Question]) -> Fatal | None:
    """What is wrong with questions that one reply by ID would answer both of."""
    by_id: dict[str, Question] = {}
    for question in asked:
        other = by_id.setdefault(question.id, question)
        if other is not question:
            return Fatal(
                f"branches '{other.path}' and '{question.path}' both ask question '{question.id}': "
                "give each its own id"
            )
    return None


def question_notes(asked: Iterable[Question]) -> list[Note]:
    """The notes of what is asked, one for each path."""
    by_path: dict[str, list[Json]] = {}
    for one in asked:
        told: Json = {"id": one.id, "position": one.position, "payload": one.payload}
        by_path.setdefault(one.path, []).append(told)
    return [
        Note(NoteKind.QUESTION, path, orjson.dumps(questions).decode()) for path, questions in by_path.items()
    ]


def answer_note(path: str, replies: Iterable[Reply]) -> Note:
    """The note of what a node has been answered."""
    value = [{"id": reply.id, "value": reply.value} for reply in replies]
    return Note(NoteKind.ANSWER, path, orjson.dumps(value).decode())


def questions_in(notes: Iterable[Note]) -> tuple[Question, ...]:
    """What is asked beside a row, by path and position."""
    return tuple(
        Question(path=note.path, id=one["id"], position=one["position"], payload=one["payload"])
        for note in notes
        if note.kind is NoteKind.QUESTION
        for one in orjson.loads(note.value)
    )


def answers_in(notes: Iterable[Note]) -> dict[str, tuple[Reply, ...]]:
    """What was answered so far, by path."""
    return {
        note.path: tuple(Reply(one["id"], one["value"]) for one in orjson.loads(note.value))
        for note in notes
        if note.kind is NoteKind.ANSWER
    }


def orphaned_by(graph: CompiledGraph[Any], notes: Iterable[Note]) -> str | None:
    """The path of a question or an answer that the graph has no node for any more, if there is one."""
    paths = [note.path for note in notes if note.kind in (NoteKind.QUESTION, NoteKind.ANSWER)]
    return next((path for path in paths if not _may_ask(graph, path)), None)


def _may_ask(graph: CompiledGraph[Any], path: str) -> bool:
    name, _, below = path.partition("/")
    composite = graph.composites.get(name)
    if not below:
        return name in graph.nodes
    if isinstance(composite, Group):
        return any(branch.name == below for branch in composite.branches)
    return isinstance(composite, Subgraph) and _may_ask(composite.child, below)


@dataclass(frozen=True, slots=True)
class Unfit:
    """Why replies can't be given."""

    reason: str


def answered(  # noqa: PLR0911 - a return for each thing that can be off
    notes: Iterable[Note], replies: Mapping[str | int, Json], thread_id: str
) -> dict[str, tuple[Reply, ...]] | Unfit:
    """All answers by path once the replies are given, or why one of them can't be.

    A node's answers go by position: with several questions open at once, the earlier ones
    have to be answered first or along with the later.
    """
    notes = tuple(notes)
    asked, have = questions_in(notes), answers_in(notes)
    thread = f"thread '{thread_id}'"
    if not asked and replies:
        return Unfit(f"{thread} asks no question: there is nothing to reply to")
    if asked and not replies:
        told = ", ".join(f"'{question.id}'" for question in asked)
        return Unfit(f"{thread} waits for an answer to {told}: only a reply answers it")
    given: dict[str, Json] = {}
    for to, value in replies.items():
        question = _asked(asked, to)
        if question is None:
            return Unfit(f"{thread} {_why_not(asked, have, to)}")
        if question.id in given:
            return Unfit(f"{thread} is given two answers to question '{question.id}'")
        given[question.id] = value
    for question in sorted(asked, key=lambda one: (one.path, one.position)):
        if question.id not in given:
            continue
        known = have.get(question.path, ())
        if len(known) != question.position:
            return Unfit(f"{thread} waits for an earlier answer than that to '{question.id}': give both")
        try:
            reply = Reply(question.id, json_value(given[question.id]))
        except StateError as error:
            return Unfit(f"{thread} is given an answer to question '{question.id}' that isn't JSON: {error}")
        have[question.path] = (*known, reply)
    return have


def _asked(asked: tuple[Question, ...], to: str | int) -> Question | None:
    if to == ONLY_QUESTION:
        return asked[0] if len(asked) == 1 else None
    if isinstance(to, str):
        return next((question for question in asked if question.id == to), None)
    at = [question for question in asked if question.position == to]
    return at[0] if len(at) == 1 else None


def _why_not(asked: tuple[Question, ...], have: Mapping[str, tuple[Reply, ...]], to: str | int) -> str:
    open_ids = ", ".join(f"'{question.id}'" for question in asked)
    if isinstance(to, int):
        if sum(question.position == to for question in asked) > 1:
            return f"asks more than one question at position {to}: answer by ID, one of {open_ids}"
        if any(0 <= to < len(replies) for replies in have.values()):
            return f"has its answer to the question at position {to} already; open: {open_ids}"
        return f"asks no question at position {to}; open: {open_ids}"
    if any(reply.id == to for replies in have.values() for reply in replies):
        return f"has its answer to question '{to}' already; open: {open_ids}"
    return f"asks no question '{to}'; open: {open_ids}"
