"""Counters and gauges of one worker, and their Prometheus text.

A registry of our own, since a worker needs neither histograms nor another dependency for
this. Counting is safe from any thread; the HTTP thread reads.
"""

from __future__ import annotations

from threading import Lock
from typing import Final

COUNTERS: Final = {
    "outcrop_messages_fetched_total": "Messages that came from the log.",
    "outcrop_messages_skipped_total": "Messages that an earlier owner had finished.",
    "outcrop_messages_finished_total": "Messages handled and published.",
    "outcrop_messages_unfinished_total": "Messages left to their next owner.",
    "outcrop_results_late_total": "Results of an earlier assignment, not published.",
    "outcrop_messages_dropped_total": "Commands that needed no answer, by reason.",
    "outcrop_outcomes_total": "Outcomes by command type and status.",
    "outcrop_dead_letters_total": "Dead letters by kind.",
    "outcrop_overtakes_total": "Messages in front of a cancel or an end that were stopped by it.",
    "outcrop_recoveries_total": "Dead runs that this worker continued.",
    "outcrop_leases_lost_total": "Runs that lost their lease.",
    "outcrop_rebalances_total": "Assignments, revocations and losses of partitions, by kind.",
    "outcrop_handovers_overdue_total": "Runs that outlasted their handover.",
    "outcrop_commits_total": "Offset commits, by result.",
    "outcrop_publish_failures_total": "Records that were not delivered at first, by permanence.",
    "outcrop_events_published_total": "Run events and tokens on the events topic.",
    "outcrop_events_left_out_total": "Run events and tokens that were not published, by reason.",
    "outcrop_driver_rounds_total": "Rounds of the drivers, by driver and result.",
    "outcrop_driver_commands_total": "Commands that the drivers produced, by driver.",
    "outcrop_threads_purged_total": "Threads that the retention driver purged.",
}
GAUGES: Final = {
    "outcrop_partitions": "Partitions that this worker owns.",
    "outcrop_messages_buffered": "Messages in the process, in flight ones included.",
    "outcrop_slots_taken": "Handlers at work.",
    "outcrop_partitions_paused": "Partitions not fetched from for now.",
    "outcrop_recoveries_exhausted": "Dead threads at max_recoveries, as last seen.",
}
_HELP = COUNTERS | GAUGES
_Labels = tuple[tuple[str, str], ...]


class Metrics:
    """Values by name and labels; a name must be declared above."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._values: dict[tuple[str, _Labels], float] = {}

    def count(self, name: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        key = (_known(name, COUNTERS), tuple(sorted(labels.items())))
        with self._lock:
            self._values[key] = self._values.get(key, 0) + amount

    def gauge(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._values[_known(name, GAUGES), tuple(sorted(labels.items()))] = value

    def value(self, name: str, **labels: str) -> float:
        """What a counter or a gauge says now; 0 before it was touched."""
        with self._lock:
            return self._values.get((_known(name, _HELP), tuple(sorted(labels.items()))), 0)

    def render(self) -> str:
        """Everything in Prometheus's text format, names and labels sorted."""
        with self._lock:
            values = sorted(self._values.items())
        lines: list[str] = []
        told = ""
        for (name, labels), value in values:
            if name != told:
                kind = "counter" if name in COUNTERS else "gauge"
                lines += [f"# HELP {name} {_HELP[name]}", f"# TYPE {name} {kind}"]
                told = name
            inner = ",".join(f'{label}="{_escape(text)}"' for label, text in labels)
            lines.append(f"{name}{{{inner}}} {value:g}" if inner else f"{name} {value:g}")
        return "\n".join(lines) + "\n"


def _known(name: str, names: dict[str, str]) -> str:
    if name not in names:
        raise KeyError(f"no metric {name}")
    return name


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
