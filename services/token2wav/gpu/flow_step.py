"""The flow's share of a step: pages for blocks, prompts that streams share, and blocks made again
where there is no room.
"""

from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import Overloaded
from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.gpu.device.host_staging import DeviceToHost
from services.token2wav.gpu.paged_flow.page_pool import PagedPrompts, Pages, PromptPages
from services.token2wav.gpu.paged_flow.unit_table import Unit
from services.token2wav.gpu.step_work import StepWork
from services.token2wav.gpu.stream_state import PagedState

if TYPE_CHECKING:  # needs triton
    from services.token2wav.gpu.paged_flow.flow import PagedFlow


class FlowStep:
    """For the engine's thread."""

    def __init__(self, flow: "PagedFlow", pages: Pages, prompts: PagedPrompts, to_host: DeviceToHost) -> None:
        self._flow, self._pages, self._prompts, self._to_host = flow, pages, prompts, to_host
        self.recomputed = 0
        """FlowStep made again because there was no room to keep them."""

    def make(self, turns: list[StepWork]) -> None:
        """Take each stream to its step_input's end, all blocks of all streams in as few passes as their
        number allows.
        """
        leaders: dict[tuple[str, int], StepWork] = {}
        followers: list[StepWork] = []
        work: list[tuple[StepWork, Unit]] = []
        for turn in turns:
            state = turn.state
            if state.cancelled or self._taken_over(turn):
                continue
            place = (state.key, turn.step_input.until)
            if state.key and turn.step_input.until <= state.inside and not state.recomputing and place in leaders:
                followers.append(turn)
                continue
            units = self._units(turn)
            if units is None:
                self._recompute(turn)
                continue
            leaders.setdefault(place, turn)
            work += [(turn, unit) for unit in units]
        most = self._flow.buckets[-1]
        for first in range(0, len(work), most):
            part = work[first : first + most]
            mels, largest = self._kept(self._flow.run([unit for _, unit in part]))
            for at, (turn, unit) in enumerate(part):
                turn.largest.append(largest[at, : MEL_FRAMES_PER_TOKEN * unit.tokens.numel()])
                self._spoken(turn, unit.position, unit.tokens.numel(), mels[at])
        for turn in followers:
            leader = leaders[turn.state.key, turn.step_input.until]
            turn.idle = not self._taken_over(turn, of=leader.state)
            # Pages that are not finite fault whoever goes on from them, so that nobody keeps them
            # for the next.
            turn.largest += leader.largest

    def _kept(self, mels: Tensor) -> tuple[Tensor, NDArray[np.float32]]:
        """A copy of mels [units, 50, 80], which the next pass overwrites; and each frame's largest
        magnitude, when the step has waited.
        """
        largest: NDArray[np.float32] = self._to_host.receive(mels.abs().amax(dim=2)).numpy()
        return mels.clone(), largest

    def _taken_over(self, turn: StepWork, of: PagedState | None = None) -> bool:
        """Go on from the pages of the prompt cache, or of a stream of the same voice, instead of
        making them.
        """
        state, until = turn.state, turn.step_input.until
        if not state.key or until > state.inside or state.recomputing:
            return False
        kept = self._prompts.get(state.key, count=False)
        pages = list(of.pages) if of is not None else list(kept.pages) if kept is not None else []
        if CHUNK_TOKENS * len(pages) < until:
            return False
        pages = pages[: until // CHUNK_TOKENS] if of is not None else pages
        self._pages.share(pages)
        old, state.pages = state.pages, pages
        self._pages.release(old)
        state.position = CHUNK_TOKENS * len(pages)
        return True

    def _known(self, turn: StepWork) -> Tensor:
        return torch.cat([turn.state.prompt, torch.from_numpy(turn.step_input.tokens)])

    def _units(self, turn: StepWork) -> list[Unit] | None:
        """The blocks up to the step_input's end, with pages taken for them; None when there are no
        pages.
        """
        state, until = turn.state, turn.step_input.until
        if state.recomputing:
            return None
        count = -(-until // CHUNK_TOKENS) - len(state.pages)
        taken = self._pages.take(count)
        if self._pages.free + self._prompts.evictable >= count:  # else prompts would leave in vain
            while taken is None and self._prompts.evict():
                taken = self._pages.take(count)
        if taken is None:
            state.give_up_pages()
            return None
        first = len(state.pages)
        state.pages += taken
        known = self._known(turn)
        units = [self._unit(state, known, at, state.pages[: at + 1], until) for at in range(first, len(state.pages))]
        state.position = until
        return units

    def _unit(self, state: PagedState, known: Tensor, at: int, pages: list[int], until: int) -> Unit:
        end = min(CHUNK_TOKENS * (at + 1), until)
        complete = end == CHUNK_TOKENS * (at + 1)
        ahead = known[end : end + LOOKAHEAD_TOKENS] if complete else known[:0]
        condition = state.conditions[at] if at < len(state.conditions) else None
        return Unit(pages, known[CHUNK_TOKENS * at : end], ahead, state.speaker, condition)

    def _recompute(self, turn: StepWork) -> None:
        """All blocks up to the step_input's end over scratch pages; those from the position on are
        new.
        """
        state, until = turn.state, turn.step_input.until
        count, first = -(-until // CHUNK_TOKENS), turn.start // CHUNK_TOKENS
        if count > self._flow.most:
            state.fault = Overloaded(
                f"no room to keep the state of a sentence of {until} tokens, and at most "
                f"{CHUNK_TOKENS * self._flow.most} are made again"
            )
            return
        known = self._known(turn)
        units = [self._unit(state, known, at, list(range(1, at + 2)), until) for at in range(count)]
        mels, largest = self._kept(self._flow.recompute(units)[first:])
        self.recomputed += first
        for at in range(first, count):
            turn.largest.append(largest[at - first, : MEL_FRAMES_PER_TOKEN * units[at].tokens.numel()])
            self._spoken(turn, at, units[at].tokens.numel(), mels[at - first])
        state.position = until

    def _spoken(self, turn: StepWork, block: int, tokens: int, mel: Tensor) -> None:
        """Keep the frames behind the prompt."""
        first = max(MEL_FRAMES_PER_TOKEN * len(turn.state.prompt) - CHUNK_FRAMES * block, 0)
        last = MEL_FRAMES_PER_TOKEN * tokens
        if first < last:
            turn.mels.append(mel[first:last])
            turn.frames += last - first

    def remember(self, turn: StepWork) -> None:
        """Keep the pages inside the prompt when they are complete, for the next stream of the
        voice.
        """
        state = turn.state
        if (
            not state.key
            or state.recomputing
            or state.cancelled
            or state.fault is not None
            or turn.start >= state.inside
            or state.position < state.inside
        ):
            return
        inside = state.inside // CHUNK_TOKENS
        self._prompts.put(state.key, PromptPages(tuple(state.pages[:inside]), state.speaker, state.conditions))
