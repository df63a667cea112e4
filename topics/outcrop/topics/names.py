"""The names of the topics that a deployment uses.

Knows no broker and no settings source; one value of these goes to the worker, the client and
the topic administration, so that they agree.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicNames:
    """Where commands, outcomes, dead letters and run events travel."""

    commands: str = "threads.commands"
    outcomes: str = "threads.outcomes"
    dead: str = "threads.dead"
    events: str = "threads.events"
