"""Places for blobs outside a store's own database: the port, and files in a folder.

A blob is named by its content and belongs to a thread. Whoever saves puts a row's blobs
before the row, and deletes a thread's after its rows, so a row never lacks one; blobs that
no row refers to may stay, until their thread is purged. A thread whose ID is used again at
the very moment when its old rows are purged may lose its first blobs: no database's
transaction covers a folder.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from .deltas import blob_hashes, fill
from .errors import InvalidRequest, StoreError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Mapping, Sequence

    from .deltas import Unfolded
    from .record import Row

_HASH = re.compile(r"sha256:([0-9a-f]{64})")
_LONGEST_THREAD_ID = 127  # bytes; in hex it is a file name, which has 255 at most
_TRIES = (*[False] * 19, True)  # many, because a purge and saves may meet in a folder; the last one raises


class BlobStore(Protocol):
    """Blobs by thread and hash (`sha256:` and 64 digits of hex); any call may raise `StoreError`."""

    async def put(self, thread_id: str, blobs: Mapping[str, bytes]) -> None:
        """Keep blobs by hash; those that are there already are left alone."""
        ...

    async def get(self, thread_id: str, hashes: Iterable[str]) -> dict[str, bytes]:
        """The blobs of these hashes that the thread has."""
        ...

    async def delete_thread(self, thread_id: str) -> None:
        """Delete all of a thread's blobs; fine when there are none."""
        ...


class FileBlobStore:
    """A file a blob: `<folder>/<hex of the thread ID>/<digits of the hash>`.

    Several processes may use a folder at once: a file appears whole or not at all. Thread
    IDs are at most 127 bytes of UTF-8 here, and not empty.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._numbers = itertools.count()

    async def put(self, thread_id: str, blobs: Mapping[str, bytes]) -> None:
        """Write the files that aren't there, durably."""
        files = {self._file(thread_id, name): content for name, content in blobs.items()}
        if files:
            await asyncio.to_thread(self._write, files)

    async def get(self, thread_id: str, hashes: Iterable[str]) -> dict[str, bytes]:
        """Read the files that are there."""
        files = {name: self._file(thread_id, name) for name in hashes}
        return await asyncio.to_thread(_read, files) if files else {}

    async def delete_thread(self, thread_id: str) -> None:
        """Delete the thread's folder."""
        try:
            folder = self._folder_of(thread_id)
        except InvalidRequest:
            return  # it never had one
        await asyncio.to_thread(_delete, folder)

    def _folder_of(self, thread_id: str) -> Path:
        try:
            name = thread_id.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"thread ID {thread_id!r} isn't valid Unicode: {error.reason}") from error
        if not 0 < len(name) <= _LONGEST_THREAD_ID:
            raise InvalidRequest(
                f"thread '{thread_id}' can't have blobs in a folder: "
                f"its ID must have 1 to {_LONGEST_THREAD_ID} bytes, not {len(name)}"
            )
        return self._folder / name.hex()

    def _file(self, thread_id: str, name: str) -> Path:
        digits = _HASH.fullmatch(name)
        if digits is None:
            raise InvalidRequest(f"'{name}' is not a sha256: hash")
        return self._folder_of(thread_id) / digits[1]

    def _write(self, files: Mapping[Path, bytes]) -> None:
        with _store_errors():
            for file, content in files.items():
                if not file.exists():
                    self._write_one(file, content)

    def _write_one(self, file: Path, content: bytes) -> None:
        part = file.with_name(f"{file.name}.{os.getpid()}-{next(self._numbers)}.tmp")
        for last in _TRIES:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                with part.open("wb") as stream:
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
                part.replace(file)
                _sync_folder(file.parent)
            except FileNotFoundError:  # a purge took the folder away in between
                if last:
                    raise
            except OSError:
                part.unlink(missing_ok=True)
                raise
            else:
                return


async def filled(
    unfolded: Sequence[Unfolded], own: Mapping[str, bytes], elsewhere: BlobStore | None
) -> list[Row]:
    """The plain rows of one thread; raises `CorruptRow`.

    Their blobs are those in the store's `own` place and, where it hasn't all, `elsewhere`: rows
    from before a folder was chosen stay readable.
    """
    # What can't be a blob's name is as good as missing: `fill` says which row refers to it.
    missing = {name for name in blob_hashes(unfolded) - own.keys() if _HASH.fullmatch(name)}
    contents = dict(own)
    if missing and elsewhere is not None:
        contents |= await elsewhere.get(unfolded[0].row.checkpoint.thread_id, missing)
    return [fill(entry, contents) for entry in unfolded]


def _read(files: Mapping[str, Path]) -> dict[str, bytes]:
    contents: dict[str, bytes] = {}
    with _store_errors():
        for name, file in files.items():
            try:
                contents[name] = file.read_bytes()
            except FileNotFoundError:
                continue  # whoever refers to it says which row does
    return contents


def _delete(folder: Path) -> None:
    with _store_errors():
        for last in _TRIES:
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:
                if not folder.exists():
                    return
            except OSError:  # a blob came meanwhile
                if last:
                    raise
            else:
                return


def _sync_folder(folder: Path) -> None:
    """Make the names of new files survive a power cut, where a folder can be synced."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _store_errors() -> Generator[None]:
    try:
        yield
    except PermissionError as error:
        raise StoreError(f"the blob folder can't be used: {error.strerror}") from error
    except OSError as error:
        raise Unavailable(f"the blob folder can't be used now: {error.strerror}") from error


if TYPE_CHECKING:
    _conforms: type[BlobStore] = FileBlobStore
