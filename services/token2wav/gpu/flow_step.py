"""The flow's part of a step: pages for blocks, prompts that streams share, and recomputed blocks if
no pages are left.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import Overloaded
from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.gpu.device.host_staging import DeviceToHost
from services.token2wav.gpu.paged_flow.page_pool import PagedPrompts, Pages, PromptPages
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.stream_state import PagedState, StepWork

if TYPE_CHECKING:  # needs triton
    from services.token2wav.gpu.paged_flow.flow import PagedFlow


class FlowStep:
    """For the engine's thread."""

    def __init__(self, flow: "PagedFlow[Any]", pages: Pages, prompts: PagedPrompts, to_host: DeviceToHost) -> None:
        self._flow, self._pages, self._prompts, self._to_host = flow, pages, prompts, to_host
        self.recomputed = 0
        """Blocks recomputed because no pages were left for them."""

    def make(self, works: list[StepWork]) -> None:
        """Advance each stream to the end of its input, with the blocks of all streams in as few
        passes as possible.
        """
        leaders: dict[tuple[str, int], StepWork] = {}
        followers: list[StepWork] = []
        queued: list[tuple[StepWork, Unit]] = []
        for work in works:
            state = work.state
            if state.cancelled or self._adopt_pages(work):
                continue
            place = (state.key, work.step_input.until)
            if state.key and work.step_input.until <= state.inside and not state.recomputing and place in leaders:
                followers.append(work)
                continue
            units = self._units(work)
            if units is None:
                self._recompute(work)
                continue
            leaders.setdefault(place, work)
            queued += [(work, unit) for unit in units]
        most = self._flow.buckets[-1]
        for first in range(0, len(queued), most):
            part = queued[first : first + most]
            mels, largest = self._copied(self._flow.run([unit for _, unit in part]))
            for at, (work, unit) in enumerate(part):
                work.largest.append(largest[at, : MEL_FRAMES_PER_TOKEN * unit.tokens.numel()])
                self._append_mel(work, unit.position, unit.tokens.numel(), mels[at])
        for work in followers:
            leader = leaders[work.state.key, work.step_input.until]
            work.idle = not self._adopt_pages(work, of=leader.state)
            # Non-finite pages must also fault the streams that continue from them, so that none of
            # these streams caches them.
            work.largest += leader.largest

    def _copied(self, mels: Tensor) -> tuple[Tensor, NDArray[np.float32]]:
        """A copy of mels [units, 50, 80], which the next pass overwrites, and the largest magnitude
        of each frame, valid after synchronization.
        """
        largest: NDArray[np.float32] = self._to_host.receive(mels.abs().amax(dim=2)).numpy()
        return mels.clone(), largest

    def _adopt_pages(self, work: StepWork, of: PagedState | None = None) -> bool:
        """Continue from the pages of the prompt cache, or of another stream of the same voice,
        instead of computing them.
        """
        state, until = work.state, work.step_input.until
        if not state.key or until > state.inside or state.recomputing:
            return False
        cached = self._prompts.get(state.key, count=False)
        pages = list(of.pages) if of is not None else list(cached.pages) if cached is not None else []
        if CHUNK_TOKENS * len(pages) < until:
            return False
        pages = pages[: until // CHUNK_TOKENS] if of is not None else pages
        self._pages.share(pages)
        old, state.pages = state.pages, pages
        self._pages.release(old)
        state.position = CHUNK_TOKENS * len(pages)
        return True

    def _known(self, work: StepWork) -> Tensor:
        return torch.cat([work.state.prompt, torch.from_numpy(work.step_input.tokens)])

    def _units(self, work: StepWork) -> list[Unit] | None:
        """The blocks up to the end of the input, with newly allocated pages; None if there are no
        pages.
        """
        state, until = work.state, work.step_input.until
        if state.recomputing:
            return None
        count = -(-until // CHUNK_TOKENS) - len(state.pages)
        new_pages = self._pages.take(count)
        if self._pages.free + self._prompts.evictable >= count:  # otherwise evicting would not help
            while new_pages is None and self._prompts.evict():
                new_pages = self._pages.take(count)
        if new_pages is None:
            state.give_up_pages()
            return None
        first = len(state.pages)
        state.pages += new_pages
        known = self._known(work)
        units = [self._unit(state, known, at, state.pages[: at + 1], until) for at in range(first, len(state.pages))]
        state.position = until
        return units

    def _unit(self, state: PagedState, known: Tensor, at: int, pages: list[int], until: int) -> Unit:
        end = min(CHUNK_TOKENS * (at + 1), until)
        complete = end == CHUNK_TOKENS * (at + 1)
        ahead = known[end : end + LOOKAHEAD_TOKENS] if complete else known[:0]
        condition = state.conditions[at] if at < len(state.conditions) else None
        return Unit(pages, known[CHUNK_TOKENS * at : end], ahead, state.speaker, condition)

    def _recompute(self, work: StepWork) -> None:
        """Compute all blocks up to the end of the input in scratch pages; those from the position
        on are new.
        """
        state, until = work.state, work.step_input.until
        count, first = -(-until // CHUNK_TOKENS), work.start // CHUNK_TOKENS
        if count > self._flow.most:
            state.fault = Overloaded(
                f"no room to keep the state of a sentence of {until} tokens, and at most "
                f"{CHUNK_TOKENS * self._flow.most} are recomputed"
            )
            return
        known = self._known(work)
        units = [self._unit(state, known, at, list(range(1, at + 2)), until) for at in range(count)]
        mels, largest = self._copied(self._flow.recompute(units)[first:])
        self.recomputed += first
        for at in range(first, count):
            work.largest.append(largest[at - first, : MEL_FRAMES_PER_TOKEN * units[at].tokens.numel()])
            self._append_mel(work, at, units[at].tokens.numel(), mels[at - first])
        state.position = until

    def _append_mel(self, work: StepWork, block: int, tokens: int, mel: Tensor) -> None:
        """Store the frames after the prompt."""
        first = max(MEL_FRAMES_PER_TOKEN * len(work.state.prompt) - CHUNK_FRAMES * block, 0)
        last = MEL_FRAMES_PER_TOKEN * tokens
        if first < last:
            work.mels.append(mel[first:last])
            work.frames += last - first

    def cache_prompt(self, work: StepWork) -> None:
        """Cache the pages inside the prompt once they are complete, for later streams of the
        voice.
        """
        state = work.state
        if (
            not state.key
            or state.recomputing
            or state.cancelled
            or state.fault is not None
            or work.start >= state.inside
            or state.position < state.inside
        ):
            return
        inside = state.inside // CHUNK_TOKENS
        self._prompts.put(state.key, PromptPages(tuple(state.pages[:inside]), state.speaker, state.conditions))
