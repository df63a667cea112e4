"""The trace context that a command carries: W3C `traceparent`.

Uses OpenTelemetry where the process has it, and never requires it.
"""

from __future__ import annotations

import re
from typing import Final

_TRACEPARENT: Final = re.compile(
    r"[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}", re.ASCII
)


def is_traceparent(text: str) -> bool:
    """Whether the text has the form of W3C Trace Context, level 1."""
    return _TRACEPARENT.fullmatch(text) is not None and not text.startswith("ff")


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
