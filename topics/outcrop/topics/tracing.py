"""The trace context that a command carries: W3C `traceparent`.

Uses OpenTelemetry where the process has it, and never requires it.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

_TRACEPARENT: Final = re.compile(
    r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)


def is_traceparent(text: str) -> bool:
    """Whether the text has the form of W3C Trace Context, level 1."""
    return _TRACEPARENT.fullmatch(text) is not None and not text.startswith("ff")


@contextmanager
def continued(traceparent: str | None) -> Generator[None]:
    """A block in the trace of the `traceparent`, where there is one and the process has OpenTelemetry."""
    if traceparent is None or not is_traceparent(traceparent):
        yield
        return
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an optional extra
    except ImportError:
        yield
        return
    _, trace_id, span_id, flags = traceparent.split("-")
    span = trace.SpanContext(
        int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=trace.TraceFlags(int(flags, 16))
    )
    with trace.use_span(trace.NonRecordingSpan(span)):
        yield


def current_traceparent() -> str | None:
    """The current OpenTelemetry span as a `traceparent`, or None without one."""
    try:
        from opentelemetry import trace  # noqa: PLC0415 - an optional extra
    except ImportError:
        return None
    span = trace.get_current_span().get_span_context()
    if not span.is_valid:
        return None
    return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
