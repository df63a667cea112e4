"""From `MODULE:NAME` to graphs: how a command names those to serve or to show."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from outcrop.engine.compiled import CompiledGraph

from .errors import GraphsNotFound

if TYPE_CHECKING:
    from collections.abc import Sequence


def load_graphs(target: str) -> tuple[CompiledGraph[Any], ...]:
    """Import `MODULE:NAME`; NAME is a compiled graph, or a list or tuple of them.

    Raises `GraphsNotFound`, as `imported` does.
    """
    return graphs_of(target, imported(target))


def imported(target: str) -> object:
    """What `MODULE:NAME` names, whatever it is.

    The current folder is looked in, as with `python -m`. Raises `GraphsNotFound`, saying
    which part is off; an exception of the module's own code is its `__cause__`.
    """
    module_name, colon, name = target.partition(":")
    if not (module_name and colon and name):
        raise GraphsNotFound(f"'{target}' isn't MODULE:NAME, such as shop.orders:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found: object = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except ModuleNotFoundError as error:
        raise GraphsNotFound(f"'{target}': there is no module {error.name} here") from error
    except AttributeError as error:
        raise GraphsNotFound(f"'{target}': {error}") from error
    except Exception as error:
        raise GraphsNotFound(
            f"'{target}': importing {module_name} failed with {type(error).__name__}"
        ) from error
    return found


def graphs_of(target: str, found: object) -> tuple[CompiledGraph[Any], ...]:
    """The compiled graphs in what `target` names; raises `GraphsNotFound` when it is something else."""
    several = cast("Sequence[object]", found) if isinstance(found, list | tuple) else (found,)
    graphs: list[CompiledGraph[Any]] = []
    for one in several:
        if not isinstance(one, CompiledGraph):
            kind = type(one).__name__
            raise GraphsNotFound(
                f"'{target}' holds a {kind}, not a compiled graph: call .compile() on the Graph"
            )
        graphs.append(cast("CompiledGraph[Any]", one))  # type: ignore[redundant-cast]  # for pyright
    if not graphs:
        raise GraphsNotFound(f"'{target}' holds no graph")
    return tuple(graphs)
