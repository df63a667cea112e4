"""What a graph's author or a node raises, and what compiling refuses.

    OutcropError
    ├── GraphError
    │   ├── CompilationFailed   one rule broken, in the builder's words
    │   ├── GraphInvalid        the structure is off; carries every problem found
    │   └── DefinitionInvalid   an exported graph can't be read back
    ├── NodeError               a node says how its failure is to be treated
    │   ├── Transient           worth another attempt, maybe after `retry_after` seconds
    │   └── Fatal               not worth one
    ├── ChannelClosed           a chunk for a stream whose run has ended
    └── StateError              a state doesn't survive its JSON form, or doesn't fit its type

Any other `Exception` of a node is a failure like `Transient`, unless its retry policy
gives up on it. What a verb on a thread comes to is no exception: see `outcome`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from outcrop.stores.errors import OutcropError

if TYPE_CHECKING:
    from .structure import Problem


class GraphError(OutcropError):
    """A graph can't be compiled."""

    code: ClassVar[str] = "OUTCROP_GRAPH"


class CompilationFailed(GraphError):
    """One rule of compiling is broken."""

    code: ClassVar[str] = "OUTCROP_GRAPH_COMPILATION_FAILED"


class GraphInvalid(GraphError):
    """The graph's structure is off; `problems` has every fault found, in order."""

    code: ClassVar[str] = "OUTCROP_GRAPH_INVALID"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(problem.message for problem in problems))
        self.problems = problems


class DefinitionInvalid(GraphError):
    """The text isn't a definition that this build reads, or its parts don't fit each other."""

    code: ClassVar[str] = "OUTCROP_GRAPH_DEFINITION_INVALID"


class NodeError(OutcropError):
    """Raised by a node to say how its failure is to be treated."""

    code: ClassVar[str] = "OUTCROP_NODE"


class Transient(NodeError):
    """The attempt failed and another may succeed, not before `retry_after` seconds if given."""

    code: ClassVar[str] = "OUTCROP_NODE_TRANSIENT"

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Fatal(NodeError):
    """The node failed for good: no retry, straight to the fallback or the failed row."""

    code: ClassVar[str] = "OUTCROP_NODE_FATAL"


class StateError(OutcropError):
    """A state doesn't survive its JSON form, or JSON doesn't fit the state's type."""

    code: ClassVar[str] = "OUTCROP_STATE"


class ChannelClosed(OutcropError):
    """A chunk was emitted after its run had ended."""

    code: ClassVar[str] = "OUTCROP_CHANNEL_CLOSED"
