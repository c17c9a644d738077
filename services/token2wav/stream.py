"""One sentence from tokens to audio: feed tokens as they arrive, iterate over the audio as it
becomes ready.

async with AcousticStream(batcher, sentence) as stream: await stream.feed(tokens) await
stream.finish() async for piece in stream: ...

Each hop takes this way. The schedule determines when the hop is due (`inputs.chunking`). The
batcher runs the stream's grid blocks through the decoder, batched with blocks of other streams
(`scheduling.batcher`). Each block becomes mel and then samples (`decoders.continuous`). The
finished hop returns here, where samples that the caller already has are cut off. A first hop that
would end before the second one is ready is held back (`scheduling.first_chunk_delay`). At most one
finished hop waits for the reader while the next one is computed.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from cosyserve.errors import InvalidRequest, NonFinite, OutOfRange
from cosyserve.spec import CHUNK_TOKENS, MEL_BINS, SPEAKER_DIMENSION
from services.token2wav.guards.loudness import SaturationGuard, SilenceGuard
from services.token2wav.inputs.request import MAX_TOKENS, Hops, Profile, Sentence, Voice, checked_tokens
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.hop_audio import HopAudio


class AcousticStream:
    """One sentence being decoded. Entering it admits the sentence (Overloaded if there is no
    capacity); leaving it frees everything the sentence holds.
    """

    def __init__(self, batcher: Batcher, sentence: Sentence) -> None:
        self._batcher, self._sentence = batcher, sentence
        self._loop = asyncio.get_running_loop()
        self._arrivals: asyncio.Queue[HopAudio | Exception] = asyncio.Queue()
        """Bounded by the batcher: at most two hops and one error ahead of the reader."""
        self._tokens = 0
        self._samples = 0
        self._silence = SilenceGuard(sentence.speed) if sentence.guards else None
        self._saturation = SaturationGuard() if sentence.guards else None
        self._silent_start = np.zeros(0, np.float32)
        """Samples from the beginning that are held back because nothing is audible in them yet."""
        self._slot = batcher.open(sentence, self._deliver)

    @property
    def euler_steps(self) -> int:
        """Taken in each block."""
        return self._sentence.euler_steps

    async def feed(self, tokens: list[int]) -> None:
        """Append speech tokens (25 per second). Raises InvalidRequest for an invalid id or more
        than 4096 tokens in total.
        """
        ids = checked_tokens("speech token", tokens)
        self._tokens += len(ids)
        if self._tokens > MAX_TOKENS:
            raise InvalidRequest(f"the sentence has more than {MAX_TOKENS} speech tokens")
        self._batcher.feed(self._slot, ids)

    async def finish(self) -> None:
        """Declare the tokens complete. Raises InvalidRequest if there are none."""
        if self._tokens == 0:
            raise InvalidRequest(f"the sentence has no speech tokens; 1 to {MAX_TOKENS} are needed")
        self._batcher.finish(self._slot)

    async def __aiter__(self) -> AsyncIterator[HopAudio]:
        """Yield hops, without the samples before the caller's start_sample, until the sentence is
        complete. Raises what the decoder raised, OutOfRange for a start_sample after the end,
        NonFinite for samples that are not finite and, with guards, Silence and Absurd.
        """
        last = False
        while not last:
            hop = await self._arrivals.get()
            if isinstance(hop, Exception):
                raise hop
            self._batcher.taken(self._slot)
            last = hop.last
            yield self._piece(hop)

    def close(self) -> None:
        """Stop decoding and free all memory, at the latest before the next Euler step."""
        self._batcher.cancel(self._slot)

    def _deliver(self, arrival: HopAudio | Exception) -> None:
        self._loop.call_soon_threadsafe(self._arrivals.put_nowait, arrival)

    def _piece(self, hop: HopAudio) -> HopAudio:
        """The part of a hop that the caller does not have yet. A start_sample after the end of the
        sentence is detected when the end is known.
        """
        samples = self._deliverable(hop)
        begin, wanted = self._samples, self._sentence.start_sample
        self._samples += samples.size
        if hop.last and wanted > self._samples:
            raise OutOfRange(f"start_sample is {wanted}; the sentence has {self._samples} samples")
        known = min(max(wanted - begin, 0), samples.size)
        return replace(hop, samples=samples[known:], start_sample=begin + known)

    def _deliverable(self, hop: HopAudio) -> NDArray[np.float32]:
        """The samples of a hop that may be delivered. They are checked first. If a silent sentence
        must fail before any audio leaves, leading silence is held back until the first audible
        sample.
        """
        if not np.isfinite(hop.samples).all():
            raise NonFinite(
                f"the decoder gave samples that are not finite behind sample {self._samples + self._silent_start.size}"
            )
        if self._saturation is not None:
            self._saturation.hear(hop.samples)
        if self._silence is None:
            return hop.samples
        self._silence.hear(hop.samples, last=hop.last)
        if not self._sentence.holds_silence:
            return hop.samples
        samples = np.concatenate([self._silent_start, hop.samples]) if self._silent_start.size else hop.samples
        hold_back = not self._silence.heard and not hop.last
        self._silent_start = samples if hold_back else samples[:0]
        return samples[:0] if hold_back else samples

    async def __aenter__(self) -> "AcousticStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def warm_up(batcher: Batcher, profile: Profile = Profile.CONTINUOUS) -> float:
    """Decode two grid blocks and part of a third through the path of a request; returns the seconds
    it took.
    """
    began = time.perf_counter()
    empty_voice = Voice(
        np.zeros(0, np.int64), np.zeros((0, MEL_BINS), np.float32), np.ones(SPEAKER_DIMENSION, np.float32)
    )
    async with AcousticStream(batcher, Sentence(empty_voice, profile=profile, hops=Hops())) as stream:
        await stream.feed([0] * (2 * CHUNK_TOKENS + 4))
        await stream.finish()
        async for _ in stream:
            pass
    return time.perf_counter() - began
