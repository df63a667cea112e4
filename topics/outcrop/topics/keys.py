"""The Kafka key of a thread's messages: the thread ID in UTF-8, and nothing else.

One key a thread means one partition, so one worker sees all of a thread's messages in order.
"""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from .messages import ThreadId

_THREAD_ID: TypeAdapter[str] = TypeAdapter(ThreadId)


def is_thread_id(text: object) -> bool:
    """Whether this is a thread ID: 1 to 256 characters, none of them a control character."""
    try:
        _THREAD_ID.validate_python(text, strict=True)
    except ValidationError:
        return False
    return True


def encode_key(thread_id: str) -> bytes:
    """The key of the thread's messages."""
    return thread_id.encode()


def decode_key(key: bytes) -> str | None:
    """The thread that a key names, or None when it is no thread ID in UTF-8."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return None
    return text if is_thread_id(text) else None
