"""What OpenTelemetry's SDK was given, kept in memory, for tests of telemetry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import DEFAULT_ON, Sampler

from outcrop.engine.telemetry import OpenTelemetry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from opentelemetry.sdk.metrics.export import Metric

Labels = dict[str, Any]


class Telescope:
    """Providers of its own, and telemetry that reports to them."""

    def __init__(self, *, sampler: Sampler = DEFAULT_ON) -> None:
        self._exporter, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers = TracerProvider(sampler, shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.meters = MeterProvider([self._reader], shutdown_on_exit=False)
        self.telemetry = OpenTelemetry(self.tracers, self.meters)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """All that have ended, in that order."""
        return self._exporter.get_finished_spans()

    def forget(self) -> None:
        """Start over with spans."""
        self._exporter.clear()

    def span(self, name: str) -> ReadableSpan:
        """The only span of this name."""
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def attributes(self, name: str) -> Labels:
        """The attributes of the only span of this name, without the thread's and the run's ID."""
        ids = ("strata.thread_id", "strata.run_id")
        return {key: value for key, value in (self.span(name).attributes or {}).items() if key not in ids}

    def events(self, name: str) -> list[tuple[str, Labels]]:
        """The span's events, as name and attributes."""
        return [(event.name, dict(event.attributes or {})) for event in self.span(name).events]

    def tree(self) -> list[str]:
        """`parent > child`, in the order in which the spans began."""
        names = {span.context.span_id: span.name for span in self.spans if span.context is not None}
        begun = sorted(self.spans, key=lambda span: span.start_time or 0)
        return [f"{names[span.parent.span_id] if span.parent else '-'} > {span.name}" for span in begun]

    def counts(self, name: str) -> list[tuple[Labels, float]]:
        """The metric's points as labels and value: the sum, the last, or how often it was recorded."""
        metric = self.metrics.get(name)
        if metric is None:
            return []
        return [(dict(point.attributes or {}), _value(point)) for point in metric.data.data_points]

    def total(self, name: str) -> float:
        """The sum of what a histogram recorded."""
        points = [] if name not in self.metrics else self.metrics[name].data.data_points
        return sum(point.sum for point in points if isinstance(point, HistogramDataPoint))

    @property
    def metrics(self) -> dict[str, Metric]:
        """Every metric that has a value, by name."""
        return {metric.name: metric for metric in self._metrics()}

    def _metrics(self) -> Iterator[Metric]:
        data = self._reader.get_metrics_data()
        for resource in [] if data is None else data.resource_metrics:
            for scope in resource.scope_metrics:
                yield from scope.metrics


def _value(point: object) -> float:
    if isinstance(point, HistogramDataPoint):
        return point.count
    assert isinstance(point, NumberDataPoint)
    return point.value
