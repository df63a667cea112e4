from __future__ import annotations

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

from outcrop.topics.tracing import continued, current_traceparent, is_traceparent

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_no_span_is_no_trace() -> None:
    assert current_traceparent() is None


def test_current_span_is_told_in_w3c_form() -> None:
    context = SpanContext(
        0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331, is_remote=False, trace_flags=TraceFlags(1)
    )
    with trace.use_span(NonRecordingSpan(context)):
        assert current_traceparent() == PARENT


def test_a_trace_is_continued_in_a_block_and_nothing_else_is() -> None:
    with continued(PARENT):
        assert current_traceparent() == PARENT
        with continued("no trace"), continued(None):
            assert current_traceparent() == PARENT
    assert current_traceparent() is None


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (PARENT, True),
        (PARENT.upper(), False),
        (PARENT + "\n", False),
        ("ff" + PARENT[2:], False),
        (PARENT.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32), False),
        (PARENT.replace("b7ad6b7169203331", "0" * 16), False),
        ("", False),
    ],
)
def test_form_is_checked(text: str, right: bool) -> None:
    assert is_traceparent(text) is right
