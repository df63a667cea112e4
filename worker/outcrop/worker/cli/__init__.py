"""The `outcrop` command: one module a group of commands, and what they share.

Commands read arguments, call the other packages and show what came of it; they decide
nothing about threads themselves. Exit codes are those of `exits`.
"""

from __future__ import annotations

from .command import main

__all__ = ["main"]
