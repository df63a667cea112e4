"""A look at a Redis server and a prefix, for `outcrop store check`; changes nothing there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from outcrop.stores.diagnosis import Diagnosis, look_at_clock
from outcrop.stores.errors import StoreError, Unavailable

from .index import Index
from .keys import Keys
from .pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_UNKNOWN: Final = "whether the server keeps its data over a restart: it doesn't let CONFIG be read"
_OLDEST: Final = 7
"""The first major version that says when a key expires, which every lease asks for."""


async def diagnose(url: str, *, prefix: str = "strata") -> Diagnosis:
    """Look at the server and the prefix; raises `Unavailable` when the server can't be reached."""
    pipeline = Pipeline(url, read_only=True)
    try:
        latency, offset = await look_at_clock(lambda: _time(pipeline))
        information = _fields(await pipeline.call("INFO"))
        saves = await _saves(pipeline, information)
        missing = list(_missing(information, saves))
        if (unindexed := await Index(pipeline, Keys(prefix)).missing()) is not None:
            missing.append(unindexed)
        return Diagnosis(
            engine="redis",
            server_version=information.get("redis_version"),
            latency=latency,
            clock_offset=offset,
            missing=tuple(missing),
            unknown=() if saves is not None else (_UNKNOWN,),
        )
    finally:
        await pipeline.close()


async def _time(pipeline: Pipeline) -> float:
    seconds, microseconds = await pipeline.call("TIME")
    return int(seconds) + int(microseconds) / 1e6


async def _saves(pipeline: Pipeline, information: Mapping[str, str]) -> bool | None:
    """Whether the server writes its data to disk; None when it doesn't tell."""
    if information.get("aof_enabled") == "1":
        return True
    try:
        answer = await pipeline.call("CONFIG", "GET", "save")
    except Unavailable:
        raise
    except StoreError:  # many a hosted server forbids it
        return None
    return bool(answer and answer[1])


def _missing(information: Mapping[str, str], saves: bool | None) -> Iterator[str]:  # noqa: FBT001 - an answer
    version = re.match(r"\d+", information.get("redis_version", ""))
    if version is not None and int(version[0]) < _OLDEST:
        yield f"the server is Redis {information['redis_version']}, and the store needs Redis {_OLDEST}"
    if information.get("cluster_enabled") == "1":
        yield "the server is part of a Redis Cluster, which the store doesn't support"
    if information.get("role") == "slave":
        yield "the server is a replica: rows can only be written on its primary"
    if saves is False:
        yield "the server keeps no data over a restart: turn on appendonly, or save points"
    policy = information.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and information.get("maxmemory") != "0":
        yield f"the server evicts keys when its memory is full ({policy}): set maxmemory-policy noeviction"


def _fields(information: bytes) -> dict[str, str]:
    lines = information.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line and not line.startswith("#"))
