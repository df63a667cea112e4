"""`outcrop demo`: everything at once, on this machine, with nothing but Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .options import add_command, add_json, count, sequence

if TYPE_CHECKING:
    from argparse import Namespace

    from .options import Subparsers

_EXAMPLES = """
outcrop demo
outcrop demo --threads 1000 --workers 4 --keep
"""


def add_commands(commands: Subparsers) -> None:
    """`demo`."""
    parser = add_command(
        commands,
        "demo",
        "run orders on three workers, kill one midway, and count the payments",
        examples=_EXAMPLES,
        details="An embedded broker, a SQLite file, a payment service and the workers are processes of this "
        "machine; all of it is gone afterwards. Exit code 1: a payment or a thread is not as promised.",
    )
    parser.add_argument(
        "--threads", type=count, default=300, metavar="N", help="how many orders (default 300)"
    )
    parser.add_argument(
        "--workers", type=count, default=3, metavar="N", help="worker processes, at least 2 (default 3)"
    )
    parser.add_argument(
        "--seed", type=sequence, default=1, metavar="N", help="which orders and answers (default 1)"
    )
    parser.add_argument("--keep", action="store_true", help="keep the files and say where they are")
    add_json(parser)
    parser.set_defaults(act=_demo)


async def _demo(arguments: Namespace) -> int:
    from outcrop.worker.demo.run import Options, demonstrate  # noqa: PLC0415 - needs the extra `kafka`

    options = Options(
        threads=arguments.threads,
        workers=arguments.workers,
        seed=arguments.seed,
        keep=arguments.keep,
        as_json=arguments.as_json,
    )
    return await demonstrate(options)
