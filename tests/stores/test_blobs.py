"""Blobs as files in a folder (K8)."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING

import pytest

from outcrop.stores import CorruptRow, InvalidRequest, Row, StoreError, Unavailable
from outcrop.stores.blobs import FileBlobStore, filled
from outcrop.stores.contract import sample
from outcrop.stores.deltas import unfold
from outcrop.stores.options import OffloadOptions

if TYPE_CHECKING:
    from pathlib import Path

CONTENT = b'"content"'
DIGITS = hashlib.sha256(CONTENT).hexdigest()
NAME = f"sha256:{DIGITS}"


def files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file())


async def test_a_file_a_thread_and_hash(tmp_path: Path) -> None:
    """K8: t/1 is folder 742f31; putting twice is fine; another thread has none."""
    blobs = FileBlobStore(tmp_path / "made" / "here")
    for _ in range(2):
        await blobs.put("t/1", {NAME: CONTENT})
    assert files(tmp_path) == [tmp_path / "made" / "here" / "742f31" / DIGITS]
    missing = f"sha256:{'0' * 64}"
    assert await blobs.get("t/1", [NAME, missing]) == {NAME: CONTENT}
    assert await blobs.get("t/2", [NAME]) == {}
    assert await FileBlobStore(str(tmp_path / "made" / "here")).get("t/1", [NAME]) == {NAME: CONTENT}


async def test_a_thread_is_deleted_alone(tmp_path: Path) -> None:
    """K8, K4: deleting twice is fine."""
    blobs = FileBlobStore(tmp_path)
    await blobs.put("a", {NAME: CONTENT})
    await blobs.put("b", {NAME: CONTENT})
    for _ in range(2):
        await blobs.delete_thread("a")
    assert await blobs.get("a", [NAME]) == {}
    assert await blobs.get("b", [NAME]) == {NAME: CONTENT}


@pytest.mark.parametrize("name", ["", DIGITS, f"sha1:{DIGITS}", f"sha256:{DIGITS.upper()}", f"{NAME}/../x"])
async def test_what_is_no_hash_is_refused(name: str, tmp_path: Path) -> None:
    """K8: it would be a file's name."""
    blobs = FileBlobStore(tmp_path)
    for call in (blobs.put("t", {name: CONTENT}), blobs.get("t", [name])):
        with pytest.raises(InvalidRequest) as refusal:
            await call
        assert str(refusal.value) == f"'{name}' is not a sha256: hash"
    assert files(tmp_path) == []


@pytest.mark.parametrize(("thread_id", "size"), [("", 0), ("x" * 128, 128), ("é" * 64, 128)])
async def test_a_thread_whose_folder_has_no_name_is_refused(
    thread_id: str, size: int, tmp_path: Path
) -> None:
    """And deleting its blobs, of which there are none, must not delete everyone's."""
    blobs = FileBlobStore(tmp_path)
    await blobs.put("t", {NAME: CONTENT})
    with pytest.raises(InvalidRequest, match=rf"its ID must have 1 to 127 bytes, not {size}$"):
        await blobs.put(thread_id, {NAME: CONTENT})
    await blobs.delete_thread(thread_id)
    assert await blobs.get("t", [NAME]) == {NAME: CONTENT}


async def test_the_longest_thread_id(tmp_path: Path) -> None:
    blobs = FileBlobStore(tmp_path)
    for thread_id in ("x" * 127, "../..", "\0"):
        await blobs.put(thread_id, {NAME: CONTENT})
        assert await blobs.get(thread_id, [NAME]) == {NAME: CONTENT}
    assert {file.parent.parent for file in files(tmp_path)} == {tmp_path}


async def test_a_thread_id_of_half_a_character_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="isn't valid Unicode"):
        await FileBlobStore(tmp_path).put("\ud800", {NAME: CONTENT})


async def test_many_at_once_and_a_purge_among_them(tmp_path: Path) -> None:
    """A file is there whole or not at all, and nothing half written stays."""
    blobs = FileBlobStore(tmp_path)
    big = b'"' + b"x" * 1_000_000 + b'"'
    name = f"sha256:{hashlib.sha256(big).hexdigest()}"
    for _ in range(5):
        calls = [blobs.put("t", {name: big}) for _ in range(8)]
        seen = await asyncio.gather(
            *calls, blobs.delete_thread("t"), *(blobs.get("t", [name]) for _ in range(4))
        )
        assert all(answer in (None, {}, {name: big}) for answer in seen)
    await blobs.put("t", {name: big})
    assert files(tmp_path) == [tmp_path / "74" / name.removeprefix("sha256:")]


async def test_a_folder_that_is_a_file_passes_maybe(tmp_path: Path) -> None:
    """Any trouble with the disk is worth another try, and named without a path."""
    (tmp_path / "file").write_text("")
    blobs = FileBlobStore(tmp_path / "file")
    with pytest.raises(Unavailable, match=r"^the blob folder can't be used now: "):
        await blobs.put("t", {NAME: CONTENT})


async def test_a_row_says_which_blob_is_missing(tmp_path: Path) -> None:
    """K3: a name that can't be one's is as good as missing."""
    for name in (NAME, "../../etc/passwd"):
        state = f'{{"checkpoint_version":"1.0.0","state":{{}},"blobs":{{"k":{{"hash":"{name}"}}}}}}'
        unfolded = unfold([Row(3, sample(schema_version="1.9.0", frozen_state=state))])
        with pytest.raises(CorruptRow) as refusal:
            await filled(unfolded, {}, FileBlobStore(tmp_path))
        what = f"refers to blob {name} at 'k', which the blob store doesn't have"
        assert str(refusal.value) == f"checkpoint 't' #3 {what}"


def test_options_are_checked() -> None:
    """K8."""
    assert OffloadOptions().threshold == 65_536
    with pytest.raises(InvalidRequest, match=r"^offload's threshold must be at least 1$"):
        OffloadOptions(threshold=0)


async def test_a_forbidden_folder_is_no_passing_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated, because root may do anything."""

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", forbidden)
    with pytest.raises(StoreError, match=r"^the blob folder can't be used: Permission denied$") as refusal:
        await FileBlobStore(tmp_path).put("t", {NAME: CONTENT})
    assert not isinstance(refusal.value, Unavailable)
