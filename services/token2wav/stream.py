"""A sentence on its way from tokens to sound: feed tokens as they come, iterate the audio as it is
ready.

    async with AcousticStream(batcher, sentence) as stream:
        await stream.feed(tokens)
        await stream.finish()
        async for piece in stream:
            ...

What happens in between, hop by hop: the schedule says that a hop is due (chunking), the batcher
takes the stream's grid blocks through the decoder together with those of other streams (batcher),
each block becomes mel and then samples (continuous), and the finished hop comes back here, where it
is cut to what the caller still lacks and written as 16-bit PCM. A first hop that would be over
before the second is there waits for it (holding). One finished hop may wait for the reader while
the next is made, and no more.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from cosyserve.audio.encoding import to_pcm
from cosyserve.errors import InvalidRequest, NonFinite, OutOfRange
from cosyserve.timing import Timing
from services.token2wav.guards.saturation import SaturationGuard
from services.token2wav.guards.silence import SilenceGuard
from services.token2wav.inputs.request import MAX_TOKENS, Sentence, checked_tokens
from services.token2wav.scheduling.batcher import Batcher
from services.token2wav.scheduling.stream_slot import HopAudio


@dataclass(frozen=True)
class Piece:
    """New sound. audio: 24 kHz s16le, empty when the hop lies before the caller's start_sample.
    start_sample: its place in the sentence.

    timings: the flow and vocoder chunks behind it. last: the sentence is over and has
    `samples_made` samples in all.
    """

    audio: bytes
    start_sample: int
    samples_made: int
    timings: list[Timing]
    last: bool


class AcousticStream:
    """One sentence being decoded. Entering it admits it (Overloaded when there is no room), leaving
    it frees everything it holds.
    """

    def __init__(self, batcher: Batcher, sentence: Sentence) -> None:
        self._batcher = batcher
        self._sentence = sentence
        self._loop = asyncio.get_running_loop()
        self._arrivals: asyncio.Queue[HopAudio | Exception] = asyncio.Queue()
        """Bounded by the batcher: at most two hops and one error ahead of the reader."""
        self._tokens = 0
        self._samples = 0
        self._silence = SilenceGuard(sentence.speed) if sentence.guards else None
        self._saturation = SaturationGuard() if sentence.guards else None
        self._silent = np.zeros(0, np.float32)
        """Samples from the beginning that are kept back, as nothing can be heard in them yet."""
        self._slot = batcher.open(sentence, self._deliver)

    async def feed(self, tokens: list[int]) -> None:
        """The next speech tokens, 25 per second. Raises InvalidRequest for a wrong id or more than
        4096 in all.
        """
        ids = checked_tokens("speech token", tokens)
        self._tokens += len(ids)
        if self._tokens > MAX_TOKENS:
            raise InvalidRequest(f"the sentence has more than {MAX_TOKENS} speech tokens")
        self._batcher.feed(self._slot, ids)

    async def finish(self) -> None:
        """The sentence has all its tokens. Raises InvalidRequest when it has none."""
        if self._tokens == 0:
            raise InvalidRequest(f"the sentence has no speech tokens; 1 to {MAX_TOKENS} are needed")
        self._batcher.finish(self._slot)

    async def __aiter__(self) -> AsyncIterator[Piece]:
        """Piece by piece until the sentence is over. Raises what the decoder raised, OutOfRange for
        a start_sample behind the end, NonFinite for samples that are no numbers and, with guards,
        Silence and Absurd."""
        last = False
        while not last:
            hop = await self._arrivals.get()
            if isinstance(hop, Exception):
                raise hop
            self._batcher.taken(self._slot)
            last = hop.last
            yield self._piece(hop)

    def close(self) -> None:
        """Stop and free everything, before the next Euler step at the latest."""
        self._batcher.cancel(self._slot)

    def _deliver(self, arrival: HopAudio | Exception) -> None:
        self._loop.call_soon_threadsafe(self._arrivals.put_nowait, arrival)

    def _piece(self, hop: HopAudio) -> Piece:
        """What the caller lacks of a hop. A resume point behind the end of the sentence is found
        out when the end is known.
        """
        samples = self._audible(hop)
        begin, wanted = self._samples, self._sentence.start_sample
        self._samples += samples.size
        if hop.last and wanted > self._samples:
            raise OutOfRange(f"start_sample is {wanted}; the sentence has {self._samples} samples")
        known = min(max(wanted - begin, 0), samples.size)
        return Piece(to_pcm(samples[known:]), begin + known, self._samples, hop.timings, hop.last)

    def _audible(self, hop: HopAudio) -> NDArray[np.float32]:
        """The samples that may leave: checked, and none before one that can be heard if a silent
        sentence must fail before any has left.
        """
        if not np.isfinite(hop.samples).all():
            raise NonFinite(
                f"the decoder gave samples that are not finite behind sample {self._samples + self._silent.size}"
            )
        if self._saturation is not None:
            self._saturation.hear(hop.samples)
        if self._silence is None:
            return hop.samples
        self._silence.hear(hop.samples, last=hop.last)
        if not self._sentence.holds_silence:
            return hop.samples
        samples = np.concatenate([self._silent, hop.samples]) if self._silent.size else hop.samples
        kept_back = not self._silence.heard and not hop.last
        self._silent = samples if kept_back else samples[:0]
        return samples[:0] if kept_back else samples

    async def __aenter__(self) -> "AcousticStream":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
