"""The flow's part of a step: pages for blocks, prompts that streams share, and recomputed blocks if
no pages are left.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cosyserve.errors import Overloaded
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
        for part in self._passes(queued):
            mels, largest = self._copied(self._flow.run([unit for _, unit in part]))
            for at, (work, unit) in enumerate(part):
                work.largest.append(largest[at, unit.frames])
                self._append_mel(work, unit.position, unit.tokens.numel(), mels[at])
        for work in works:
            work.state.forget()
        for work in followers:
            leader = leaders[work.state.key, work.step_input.until]
            work.idle = not self._adopt_pages(work, of=leader.state)
            # Non-finite pages must also fault the streams that continue from them, so that none of
            # these streams caches them.
            work.largest += leader.largest

    def _passes(self, queued: list[tuple[StepWork, Unit]]) -> list[list[tuple[StepWork, Unit]]]:
        """As many units as the largest bucket has, in order; the units of a prompt that is one
        block in the same pass, even where they are more.
        """
        passes: list[list[tuple[StepWork, Unit]]] = []
        together: list[list[tuple[StepWork, Unit]]] = []
        for work, unit in queued:
            of_prompt = unit.position < work.state.units.of_prompt
            if of_prompt and together and together[-1][-1][0] is work:
                together[-1].append((work, unit))
            else:
                together.append([(work, unit)])
        for group in together:
            if passes and len(passes[-1]) + len(group) <= self._flow.buckets[-1]:
                passes[-1] += group
            else:
                passes.append(group)
        return passes

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
        pages, fronts = (
            of.of_prompt if of is not None else (cached.pages, cached.fronts) if cached is not None else ((), ())
        )
        if state.units.end(len(pages)) < until:
            return False
        state.adopt(list(pages[: state.units.count(until)] if of is not None else pages), list(fronts))
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
        first = len(state.pages)
        count = state.units.count(until) - first
        fronts = state.fronts_for(first + count) - len(state.fronts)
        count += fronts
        new_pages = self._pages.take(count)
        if self._pages.free + self._prompts.evictable >= count:  # otherwise evicting would not help
            while new_pages is None and self._prompts.evict():
                new_pages = self._pages.take(count)
        if new_pages is None:
            state.give_up_pages()
            return None
        state.pages += new_pages[fronts:]
        state.fronts += new_pages[:fronts]
        known, front_pages = self._known(work), state.front_pages()
        units = [self._unit(state, known, at, state.pages, front_pages, until) for at in range(first, len(state.pages))]
        state.position = until
        return units

    def _unit(
        self, state: PagedState, known: Tensor, at: int, pages: list[int], front_pages: list[int] | None, until: int
    ) -> Unit:
        span, (seen, own) = state.units.tokens(at, until), state.units.seen(at)
        complete = span.stop == state.units.end(at + 1)
        ahead = known[state.units.lookahead(span.stop)] if complete else known[:0]
        condition = state.conditions[at] if at < len(state.conditions) else None
        return Unit(
            [pages[one] for one in seen],
            known[span.start : span.stop],
            ahead,
            state.speaker,
            condition,
            own,
            None if front_pages is None else front_pages[: max(at + 1, state.units.of_prompt)],
            state.units.skipped,
        )

    def _recompute(self, work: StepWork) -> None:
        """Compute all blocks up to the end of the input in scratch pages; those from the position
        on are new.
        """
        state, until = work.state, work.step_input.until
        count, first = state.units.count(until), state.units.count(work.start)
        if count > self._flow.most:
            state.fault = Overloaded(
                f"no room to keep the state of a sentence of {until} tokens, and at most "
                f"{state.units.end(self._flow.most)} are recomputed"
            )
            return
        known, pages = self._known(work), list(range(1, count + 1))
        front_pages = self._flow.scratch_front_pages(count) if state.room else None
        units = [self._unit(state, known, at, pages, front_pages, until) for at in range(count)]
        mels, largest = self._copied(self._flow.recompute(units)[first:])
        self.recomputed += first
        for at in range(first, count):
            work.largest.append(largest[at - first, units[at].frames])
            self._append_mel(work, at, units[at].tokens.numel(), mels[at - first])
        state.position = until

    def _append_mel(self, work: StepWork, block: int, tokens: int, mel: Tensor) -> None:
        """Store the frames after the prompt."""
        spoken = work.state.units.spoken(block, tokens)
        if spoken.start < spoken.stop:
            work.mels.append(mel[spoken])
            work.frames += spoken.stop - spoken.start

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
        pages, fronts = state.of_prompt
        self._prompts.put(state.key, PromptPages(tuple(pages), state.speaker, state.conditions, tuple(fronts)))
