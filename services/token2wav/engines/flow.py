"""Speech tokens to mel by engines, always from the first prompt token on: computes what
`Flow.prefix` computes, for several streams in one batch.

Nothing is stored between calls, so a call costs as much as its whole prefix. Lengths are padded to
those for which engines are built and graphs are recorded (`shapes.padded`); a mask excludes the
padding.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from cosyserve.errors import NonFinite
from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, MEL_BINS, MEL_FRAMES_PER_TOKEN
from services.token2wav.engines.runtime import Engine
from services.token2wav.engines.shapes import USUAL_TOKENS, encoder_shapes, estimator_shapes, padded
from services.token2wav.engines.slots import BoundEngine, Slot, Slots, filled
from services.token2wav.flow.attention import chunk_mask
from services.token2wav.flow.flow import VoicePrompt, with_lookahead
from services.token2wav.flow.layers import Linear
from services.token2wav.flow.network import NetworkConfig
from services.token2wav.flow.solver import ROWS, euler_schedule, noise_table
from services.token2wav.flow.unet.encoder import relative_positions
from services.token2wav.inputs.request import Cancelled, Stop, never

_LONGEST_CACHED = MEL_FRAMES_PER_TOKEN * USUAL_TOKENS


@dataclass(frozen=True)
class Prefix:
    """The prefix of one stream.

    ids: int64 [n], prompt and generated tokens to compute. ahead: int64, the next 0..3. speaker:
    float32 [80]. mel: the prompt's, float32 [2P, 80]. stop: whether the result is no longer needed.
    """

    ids: Tensor
    ahead: Tensor
    mel: Tensor
    speaker: Tensor
    stop: Stop = never


class EngineFlow:
    """encoder, estimator: engines of `tools.model.graphs`, or the published estimator. speaker:
    linear map of the voice's embedding. batch: maximum number of streams in a call.
    """

    def __init__(
        self,
        config: NetworkConfig,
        encoder: Engine,
        estimator: Engine,
        speaker: Linear,
        slots: Slots,
        device: torch.device,
        batch: int,
    ) -> None:
        self.config, self.device = config, device
        self.euler_steps = 0
        """Steps begun since the start, counted for each stream."""
        self._counting = threading.Lock()
        self.masked = any(port.name == "attention" for port in estimator.inputs)
        """Whether the estimator supports streaming masks. The published one does not, and takes one
        stream per call.
        """
        self.batch = batch if self.masked else 1
        self._encoder, self._estimator, self._speaker, self.slots = encoder, estimator, speaker, slots
        self._noise = (config.temperature * noise_table()).contiguous().to(device)
        self._schedule = euler_schedule()
        self._cached_positions = lru_cache(maxsize=32)(self._compute_positions)
        self._cached_masks = lru_cache(maxsize=64)(self._compute_mask)

    def prefix(self, voice: VoicePrompt, tokens: Tensor, *, streaming: bool, final: bool, stop: Stop = never) -> Tensor:
        """See `Flow.prefix`. With the published estimator `streaming` has no effect, as in the
        reference.
        """
        ids, ahead = with_lookahead(voice, tokens, final=final)
        mel = self.prefixes([Prefix(ids, ahead, voice.mel, self.speaker(voice), stop)], streaming=streaming)[0]
        if mel is None:
            raise Cancelled("stopped between two Euler steps")
        if not bool(torch.isfinite(mel).all()):
            raise NonFinite("the flow produced values that are not finite")
        return mel[:, voice.mel.shape[0] :].contiguous()

    @torch.inference_mode()
    def prefixes(self, streams: Sequence[Prefix], *, streaming: bool) -> list[Tensor | None]:
        """Streams of one padded length, at most `batch`: mel float32 [80, 2n] of each, including
        the prompt's frames; None for a stream that was stopped before the last Euler step. Waits
        for a slot.
        """
        tokens = padded(max(stream.ids.numel() for stream in streams))
        with self.slots.lease() as slot:
            x = self._solve(slot, streams, self._mu(slot, streams, tokens, streaming), tokens, streaming)
            if x is None:
                return [None] * len(streams)
            frames = [MEL_FRAMES_PER_TOKEN * stream.ids.numel() for stream in streams]
            mels = [x[row, :, :count].clone() for row, count in enumerate(frames)]
        return [None if stream.stop() else mel for stream, mel in zip(streams, mels, strict=True)]

    def speaker(self, voice: VoicePrompt) -> Tensor:
        """float32 [80]: the embedding at unit length, projected."""
        with torch.inference_mode():
            return self._speaker(torch.nn.functional.normalize(voice.embedding.to(self.device, torch.float32), dim=-1))

    def _mu(self, slot: Slot, streams: Sequence[Prefix], tokens: int, streaming: bool) -> Tensor:
        """The encoder's output, [streams, 80, 2 * tokens]."""
        count, frames = len(streams), MEL_FRAMES_PER_TOKEN * tokens
        width = self.config.position_width
        shapes = encoder_shapes(count, tokens, width)
        encoder = slot.at(self._encoder, shapes, {"mu": (count, MEL_BINS, frames)})
        ids = torch.zeros(shapes["tokens"], dtype=torch.int32)
        known, mask = torch.zeros(shapes["known"]), torch.zeros(count, 1, tokens)
        for row, stream in enumerate(streams):
            length, seen = stream.ids.numel(), stream.ids.numel() + stream.ahead.numel()
            ids[row, :length], ids[row, length:seen] = stream.ids, stream.ahead
            known[row, :seen], mask[row, :, :length] = 1.0, 1.0
        given = {"tokens": ids, "known": known}
        if width is not None:
            given |= {
                "mask": mask,
                "attention": self._masks(tokens, streaming and CHUNK_TOKENS),
                "positions": self._positions(tokens, width),
                "attention_frames": self._masks(frames, streaming and CHUNK_FRAMES),
                "positions_frames": self._positions(frames, width),
            }
        filled(encoder.inputs, given)
        encoder.run()
        return encoder.outputs["mu"]

    def _solve(self, slot: Slot, streams: Sequence[Prefix], mu: Tensor, tokens: int, streaming: bool) -> Tensor | None:
        """The mel of all streams [streams, 80, 2 * tokens]; None as soon as all of them are stopped
        before an Euler step.
        """
        count, frames = len(streams), MEL_FRAMES_PER_TOKEN * tokens
        shapes = estimator_shapes(ROWS * count, frames, masked=self.masked)
        estimator = slot.at(self._estimator, shapes, {"estimator_out": (ROWS * count, MEL_BINS, frames)})
        given = estimator.inputs
        self._condition(given, streams, mu)
        if self.masked:
            given["attention"].copy_(self._masks(frames, streaming and CHUNK_FRAMES), non_blocking=True)
        x = self._noise[None, :, :frames].expand(count, -1, -1).clone()
        if x.shape[2] < frames:  # only padding can exceed the noise table
            x = torch.nn.functional.pad(x, (0, frames - x.shape[2]))
        for t, dt in self._schedule:
            if all(stream.stop() for stream in streams):
                return None
            with self._counting:  # each slot is used by its own thread
                self.euler_steps += count
            self._euler(estimator, x, t, dt)
        return x

    def _euler(self, estimator: BoundEngine, x: Tensor, t: float, dt: float) -> None:
        """One Euler step of x [streams, 80, frames], in place."""
        given = estimator.inputs
        given["x"].view(-1, ROWS, *x.shape[1:]).copy_(x[:, None])
        given["t"].fill_(t)
        estimator.run()
        velocity = estimator.outputs["estimator_out"].view(-1, ROWS, *x.shape[1:])
        guidance = self.config.guidance
        x.add_((1.0 + guidance) * velocity[:, 0] - guidance * velocity[:, 1], alpha=dt)

    def _condition(self, given: dict[str, Tensor], streams: Sequence[Prefix], mu: Tensor) -> None:
        """Row 0 of each stream carries the condition, row 1 zeros."""
        for name in ("mask", "mu", "spks", "cond"):
            given[name].zero_()
        given["mu"][::ROWS].copy_(mu)
        for row, stream in enumerate(streams):
            length = MEL_FRAMES_PER_TOKEN * stream.ids.numel()
            prompt = min(stream.mel.shape[0], length)
            given["mask"][ROWS * row : ROWS * (row + 1), :, :length] = 1.0
            given["mu"][ROWS * row, :, length:] = 0.0
            given["spks"][ROWS * row].copy_(stream.speaker)
            given["cond"][ROWS * row, :, :prompt].copy_(stream.mel[:prompt].T.to(torch.float32))

    def _positions(self, length: int, width: int) -> Tensor:
        """Tables of usual lengths are cached; a table of the longest has 46 MB, a mask 125 MB."""
        compute = self._cached_positions if length <= _LONGEST_CACHED else self._compute_positions
        return compute(length, width)

    def _masks(self, length: int, chunk: int) -> Tensor:
        return self._cached_masks(length, chunk) if length <= _LONGEST_CACHED else self._compute_mask(length, chunk)

    def _compute_positions(self, length: int, width: int) -> Tensor:
        """[2 * length, width]: a row of zeros, then the sinusoids."""
        table = relative_positions(length, length, width, torch.device("cpu"))
        return self._shared_by_slots(torch.cat((torch.zeros(1, width), table)).to(self.device))

    def _compute_mask(self, length: int, chunk: int) -> Tensor:
        """bool [length, length]; chunk 0: full attention."""
        if not chunk:
            return self._shared_by_slots(torch.ones(length, length, dtype=torch.bool, device=self.device))
        return self._shared_by_slots(chunk_mask(length, chunk, self.device))

    def _shared_by_slots(self, tensor: Tensor) -> Tensor:
        """Wait until `tensor` is written, because slots with other CUDA streams may read it
        next.
        """
        if self.device.type == "cuda":
            torch.cuda.current_stream(self.device).synchronize()
        return tensor
