"""Saves on their way through an `Encoder` into a store: draft, blobs, append, and again if a base moved.

Owns the order of the steps that every store with deltas and offload shares. Knows no store:
one brings `append`, which writes stored forms in one transaction and says for each what
became of it. What is remembered of a thread is forgotten before anything can rely on a doubt.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from .errors import StoreError
from .port import Saved

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from .blobs import BlobStore
    from .encoding import Encoder, Stored
    from .port import SaveResult
    from .record import Checkpoint
    from .save import Save


@dataclass(frozen=True, slots=True)
class BaseMoved:
    """The row's base is no longer the thread's latest row; nothing was written.

    Only the answer when nothing else refuses the save: a lost lease or a moved log go first.
    """


Answer: TypeAlias = "SaveResult | BaseMoved"
Append: TypeAlias = "Callable[[Sequence[Save], Sequence[Stored]], Awaitable[Sequence[Answer]]]"
"""Appends the saves in these forms, in order, in one transaction; raises where nothing was written."""


class EncodedSaves:
    """A store's saves, in the forms that its encoder chooses."""

    def __init__(
        self,
        encoder: Encoder,
        append: Append,
        *,
        blobs: BlobStore | None = None,
        token_of: Callable[[Checkpoint], str] = attrgetter("created_at"),
    ) -> None:
        """`blobs` keeps them outside the store; `token_of` a stored row is its base token (see `Base`)."""
        self._encoder = encoder
        self._append = append
        self._blobs = blobs
        self._token_of = token_of

    async def save(self, save: Save) -> SaveResult:
        """Append one; raises `StoreError`."""
        (answer,) = await self._try([save], [self._encoder.draft(save.checkpoint)])
        return await self._whole(save) if isinstance(answer, BaseMoved) else answer

    async def flush(self, saves: Sequence[Save]) -> list[SaveResult | StoreError]:
        """Append several in one transaction (a `Flush`), and those whose base moved each by itself."""
        drafts = self._encoder.drafts([save.checkpoint for save in saves])
        answers = await self._try(saves, drafts)
        results: list[SaveResult | StoreError] = []
        for save, answer in zip(saves, answers, strict=True):
            if isinstance(answer, BaseMoved):
                try:
                    results.append(await self._whole(save))
                except StoreError as error:
                    results.append(error)  # the others are committed
            else:
                results.append(answer)
        return results

    async def _whole(self, save: Save) -> SaveResult:
        (answer,) = await self._try([save], [self._encoder.whole(save.checkpoint)])
        if isinstance(answer, BaseMoved):
            raise StoreError(f"the store refused a whole row of thread '{save.checkpoint.thread_id}'")
        return answer

    async def _try(self, saves: Sequence[Save], forms: Sequence[Stored]) -> Sequence[Answer]:
        try:
            answers = await self._append(saves, await self._with_blobs_out(forms))
        except BaseException:  # a doubt at worst; a cancelled call is one as well
            for save in saves:
                self._encoder.forget(save.checkpoint.thread_id)
            raise
        for save, form, answer in zip(saves, forms, answers, strict=True):
            if not isinstance(answer, Saved):
                self._encoder.forget(save.checkpoint.thread_id)
            elif form.latest is not None:  # else there is nothing to remember, and a token isn't for nothing
                token = self._token_of(form.checkpoint)
                self._encoder.saved(save.checkpoint, form, answer.sequence, token)
        return answers

    async def _with_blobs_out(self, forms: Sequence[Stored]) -> Sequence[Stored]:
        """Put blobs that belong outside there, before any row refers to them."""
        blobs = self._blobs
        if blobs is None:
            return forms
        for form in forms:
            if form.blobs:
                await blobs.put(form.checkpoint.thread_id, form.blobs)
        return [replace(form, blobs={}) for form in forms]
