"""`outcrop worker` and `outcrop dev`: run graphs, on your broker or on an embedded one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outcrop.worker.settings import Settings

from .configuration import add_settings, settings_of
from .options import add_command
from .terminal import Screen

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

    from .options import Subparsers

_WORKER_EXAMPLES = """
outcrop worker shop.orders:graph --bootstrap broker:9092 --store sqlite:////data/threads.db
OUTCROP_BOOTSTRAP=broker:9092 outcrop worker shop:GRAPHS --concurrency 200 --health-port 8080
outcrop worker shop.orders:graph --config worker.toml
"""
_WORKER_DETAILS = """\
NAME is a compiled graph or a list of them. SIGTERM and Ctrl-C stop it in order, a second one at once.

a worker's own exit codes:
  0    stopped in order
  6    stopped, with runs cut off that another worker continues
  130  stopped at once by a second signal"""
_DEV_EXAMPLES = """
outcrop dev shop.orders:graph
outcrop dev shop.orders:graph --store sqlite:///try.db --log-level debug
"""
_DEV_SETTINGS = ("store", "worker", "concurrency", "lease_ttl", "health_port", "log_level", "log_format")
_DEV_STORE = "sqlite:///outcrop-dev.db"


def add_commands(commands: Subparsers) -> None:
    """`worker` and `dev`."""
    worker = add_command(
        commands,
        "worker",
        "run graphs for the commands on your broker",
        examples=_WORKER_EXAMPLES,
        details=_WORKER_DETAILS,
    )
    _add_graphs(worker)
    add_settings(worker, Settings.model_fields)
    worker.set_defaults(act=_worker)

    dev = add_command(
        commands,
        "dev",
        "run your graphs on an embedded broker and a SQLite file, to try them",
        examples=_DEV_EXAMPLES,
        details="The broker keeps its messages in memory and guarantees nothing; the threads stay in the "
        f"file ({_DEV_STORE} unless --store says otherwise).",
    )
    _add_graphs(dev)
    add_settings(dev, _DEV_SETTINGS)
    dev.set_defaults(act=_dev)


def _add_graphs(parser: ArgumentParser) -> None:
    parser.add_argument("graphs", metavar="MODULE:NAME", help="where the compiled graphs are")


def _worker(arguments: Namespace) -> int:
    from outcrop.worker.app import load_graphs, run  # noqa: PLC0415 - needs the extra `kafka`

    settings = settings_of(arguments)
    return run(settings, load_graphs(arguments.graphs))


def _dev(arguments: Namespace) -> int:
    from outcrop.worker.dev import develop  # noqa: PLC0415 - needs the extra `kafka`

    if arguments.setting_store is None:  # not the environment's either: that may be production
        arguments.setting_store = _DEV_STORE
    screen = Screen()
    return develop(arguments.graphs, lambda **fixed: settings_of(arguments, **fixed), say=screen.line)
