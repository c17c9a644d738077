"""Speech tokens to mel by a flow, whichever network it has (compatibility specification of
CosyVoice2, section 4; of CosyVoice3, section 4).

`offline` and `prefix` recompute everything, as the reference does; `blocks` continues from stored
state. A state holds the keys and values of every attention, Euler step and guidance row
(`NetworkConfig.state_bytes_per_frame`). With CosyVoice2's published sizes (56 attentions 512 wide)
that is 4.6 MB for each mel frame in float32, 2.3 MB with a half-precision estimator, or 231 MB and
116 MB for each second of audio, prompt included; with CosyVoice3's (22 attentions 1024 wide) 3.6 MB
and 1.8 MB, or 180 MB and 90 MB.
"""

import threading
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from cosyserve.errors import NonFinite
from cosyserve.spec import CHUNK_FRAMES, EULER_STEPS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.attention import Mask, chunk_mask
from services.token2wav.flow.flow_state import FlowState
from services.token2wav.flow.kept_memory import BlockMemory, Mappings
from services.token2wav.flow.network import FlowNetwork, NetworkConfig
from services.token2wav.flow.past import WHOLE_PAST, Past
from services.token2wav.flow.solver import ROWS, Solver, noise_table, plausible
from services.token2wav.flow.stream_cache import EMPTY, CachedPass, StreamCache, Workspace
from services.token2wav.inputs.request import Cancelled, Stop, Voice, never


@dataclass(frozen=True)
class VoicePrompt:
    """The voice as tensors, on the CPU.

    tokens: int64 [P], 25 Hz. mel: float32 [2P, 80], 50 Hz, time-major. embedding: float32 [192],
    not normalised.
    """

    tokens: Tensor
    mel: Tensor
    embedding: Tensor


def as_prompt(voice: Voice) -> VoicePrompt:
    """Convert the request's voice, which is already checked, to tensors."""
    return VoicePrompt(*(torch.from_numpy(array) for array in (voice.tokens, voice.mel, voice.embedding)))


class Flow:
    """A network with its solver; no state of any stream. May be shared: a lock serializes calls
    from several threads.

    batch_invariant: each stream of `blocks` is computed alone, in shapes that depend only on its
    own content, so its mel is bit-identical whatever runs concurrently. Otherwise blocks of equal
    length and number of Euler steps form one batch, whose results equal the single ones within 2e-5
    in float32. Default: on for the CPU, off for other devices.

    past: what the streams of `blocks` keep, and where their blocks lie.
    """

    def __init__(
        self, config: NetworkConfig, network: FlowNetwork, device: torch.device, past: Past = WHOLE_PAST
    ) -> None:
        self.config, self.device, self.past = config, device, past
        self._turn = threading.Lock()
        self._workspace = Workspace() if device.type == "cpu" else None
        # Two, because a stream with a bounded past keeps what is the encoder's for longer.
        encoder = int(CHUNK_FRAMES * config.encoder_bytes_per_frame)
        steps = CHUNK_FRAMES * config.state_bytes_per_frame(network.estimator.dtype) - encoder
        self._encoder_mappings, self._step_mappings = (
            Mappings(size) if device.type == "cpu" else None for size in (encoder, steps)
        )
        self.batch_invariant = device.type == "cpu"
        self.network, self.estimator = network, network.estimator
        self.noise = (config.temperature * noise_table()).T.contiguous().to(device)
        with torch.inference_mode():
            self._solver = Solver(self.estimator, config.guidance, device)

    @property
    def euler_steps(self) -> int:
        """Euler steps begun since the start, counted for each stream; readable from any thread."""
        return self._solver.euler_steps

    @torch.inference_mode()
    def prefix(self, voice: VoicePrompt, tokens: Tensor, *, streaming: bool, final: bool, stop: Stop = never) -> Tensor:
        """One call of the reference's streaming schedule (section 4.6); recomputes everything from
        the first token on.

        tokens: int64 [T], all generated so far; unless final, the last 3 are look-ahead only.
        streaming: use chunk masks. Returns mel float32 [80, 2 * T] or [80, 2 * (T - 3)] without the
        prompt's frames. Raises NonFinite if the result is not finite, Cancelled if `stop` returns
        True before an Euler step.
        """
        with self._turn:
            return self._prefix(voice, tokens, streaming=streaming, final=final, stop=stop)

    def _prefix(self, voice: VoicePrompt, tokens: Tensor, *, streaming: bool, final: bool, stop: Stop) -> Tensor:
        ids, ahead = with_lookahead(voice, tokens, final=final)
        frames = MEL_FRAMES_PER_TOKEN * ids.numel()
        mu = self.mu([ids], [ahead], [0], CachedPass.whole(1), chunked=streaming)
        inputs = Solver.inputs(
            mu, self.speaker(voice)[None], self._condition(voice.mel.to(self.device), 0, frames)[None]
        )
        mask = None
        if streaming:
            mask = Mask(
                mu.new_ones(ROWS, frames, 1, dtype=self.estimator.dtype), chunk_mask(frames, CHUNK_FRAMES, self.device)
            )
        mel = self._solver.solve(self.noise[None, :frames], inputs, mask, stop)
        if mel is None:
            raise Cancelled("stopped between two Euler steps")
        if not plausible(mel).all():
            raise NonFinite("the flow produced values that are not finite, or beyond any mel")
        return mel[0, voice.mel.shape[0] :].T.contiguous()

    @torch.inference_mode()
    def start(self, voice: VoicePrompt, euler_steps: int = EULER_STEPS, past: Past | None = None) -> FlowState:
        """A stream with nothing computed yet, of so many Euler steps a block (5 to 10). past: None
        is that of the flow.
        """
        condition = voice.mel.to(self.device, torch.float32, copy=True)
        return FlowState(self.speaker(voice), condition, past or self.past, steps=(EMPTY,) * euler_steps)

    def fork(self, state: FlowState) -> FlowState:
        """A second stream at the position of `state`. Both share the stored past, because no block
        ever writes to it.
        """
        return FlowState(
            speaker=state.speaker,
            condition=state.condition,
            past=state.past,
            position=state.position,
            fault=state.fault,
            encoder=state.encoder,
            steps=state.steps,
        )

    @torch.inference_mode()
    def blocks(self, states: list[FlowState], tokens: list[Tensor], lookahead: list[Tensor]) -> list[Tensor | None]:
        """The next block of each stream; exact under streaming masks, because a block sees nothing
        after it.

        tokens[i]: int64 [n] from the stream's position on, n = 25 or, at the end of the sentence,
        1..25; a prompt as one block has any length (`Past.check`). lookahead[i]: int64, the next 3
        tokens or, at the end, the 0..2 that exist. Returns mel float32 [80, 2n] per stream,
        including the prompt's frames. The result is None for a cancelled stream and for a stream
        with a `fault`, which holds the reason; the other streams continue. Raises InternalFault
        before any work for blocks off the grid; then no state has changed.
        """
        for state, block, ahead in zip(states, tokens, lookahead, strict=True):
            state.past.check(state.prompt, state.position, block.numel(), ahead.numel())
        results: list[Tensor | None] = [None] * len(states)
        for group in self._groups(tokens, states):
            with self._turn:
                advanced = self._advance(
                    [states[at] for at in group], [tokens[at] for at in group], [lookahead[at] for at in group]
                )
            for at, mel in zip(group, advanced, strict=True):
                results[at] = mel
        return results

    def speaker(self, voice: VoicePrompt) -> Tensor:
        """float32 [80], see `FlowNetwork.speaker`."""
        return self.network.speaker(voice.embedding.to(self.device, torch.float32))

    def mu(
        self, ids: list[Tensor], ahead: list[Tensor], before: list[int], cache: CachedPass, *, chunked: bool = False
    ) -> Tensor:
        """Tokens, the same number per stream, and their look-ahead -> float32 [streams, 2n, 80];
        see `FlowNetwork.mu`.
        """
        padded = torch.stack([F.pad(some, (0, LOOKAHEAD_TOKENS - some.numel())) for some in ahead]).to(self.device)
        known = torch.tensor(
            [[at < some.numel() for at in range(LOOKAHEAD_TOKENS)] for some in ahead], device=self.device
        )
        return self.network.mu(torch.stack(ids).to(self.device), padded, known, before, cache, chunked=chunked)

    def _advance(self, states: list[FlowState], tokens: list[Tensor], lookahead: list[Tensor]) -> list[Tensor | None]:
        live = self._uncancelled(states, list(range(len(states))))
        if not live:
            return [None] * len(states)
        frames = MEL_FRAMES_PER_TOKEN * tokens[0].numel()
        before = [states[at].position for at in live]
        cache = CachedPass(
            [states[at].encoder for at in live],
            1,
            workspace=self._workspace,
            memory=_memories(self._encoder_mappings, len(live)),
        )
        mu = self.mu([tokens[at] for at in live], [lookahead[at] for at in live], before, cache)
        encoders = dict(zip(live, cache.after(), strict=True))
        firsts = [MEL_FRAMES_PER_TOKEN * position for position in before]
        conditions = torch.stack(
            [self._condition(states[at].condition, first, frames) for at, first in zip(live, firsts, strict=True)]
        )
        inputs = Solver.inputs(mu, torch.stack([states[at].speaker for at in live]), conditions)
        noises = [states[at].past.first_noise(states[at].prompt, states[at].position) for at in live]
        x = torch.stack([self.noise[first : first + frames] for first in noises])
        steps: dict[int, list[StreamCache]] = {at: [] for at in live}
        number = len(states[live[0]].steps)
        memory = dict(zip(live, _memories(self._step_mappings, len(live)), strict=False))
        for step in range(number):
            still = self._uncancelled(states, live)
            if not still:
                return [None] * len(states)
            if len(still) < len(live):
                rows = torch.tensor([live.index(at) for at in still], device=self.device)
                x, inputs, live = x[rows], inputs[rows], still
            cache = CachedPass(
                [states[at].steps[step] for at in live],
                ROWS,
                workspace=self._workspace,
                memory=[memory[at] for at in live if memory],
            )
            x = self._solver.step(step, x, inputs, cache, None, number)
            for at, past in zip(live, cache.after(), strict=True):
                steps[at].append(states[at].past.kept(states[at].prompt, past))
        advanced: list[Tensor | None] = [None] * len(states)
        good = plausible(x).tolist()
        for row, at in enumerate(live):
            state = states[at]
            if not good[row]:
                state.fault = NonFinite(
                    f"the flow produced values that are not finite, or beyond any mel behind token {state.position}"
                )
                state.release()
                continue
            state.encoder, state.steps = encoders[at], tuple(steps[at])
            state.position += tokens[at].numel()
            advanced[at] = x[row].T.contiguous()
        return advanced

    @staticmethod
    def _uncancelled(states: list[FlowState], among: list[int]) -> list[int]:
        live = []
        for at in among:
            if states[at].cancelled or states[at].fault is not None:
                states[at].release()
            else:
                live.append(at)
        return live

    def _groups(self, tokens: list[Tensor], states: list[FlowState]) -> list[list[int]]:
        if self.batch_invariant:
            return [[at] for at in range(len(tokens))]
        groups: dict[tuple[int, int], list[int]] = {}
        for at, (block, state) in enumerate(zip(tokens, states, strict=True)):
            groups.setdefault((block.numel(), len(state.steps)), []).append(at)
        return list(groups.values())

    def _condition(self, mel: Tensor, first: int, frames: int) -> Tensor:
        """The prompt's mel [frames, 80] from frame `first` on, followed by zeros."""
        part = mel[first : first + frames]
        return F.pad(part, (0, 0, 0, frames - part.shape[0]))


def _memories(mappings: Mappings | None, streams: int) -> list[BlockMemory]:
    """For what each stream keeps of a block; none where torch has memory of its own, as on a
    GPU.
    """
    return [BlockMemory(mappings) for _ in range(streams)] if mappings else []


def with_lookahead(voice: VoicePrompt, tokens: Tensor, *, final: bool) -> tuple[Tensor, Tensor]:
    """The ids to compute, those of the prompt included, and their look-ahead: none at the end."""
    ids = torch.cat((voice.tokens, tokens.cpu()))
    return (ids, ids[:0]) if final else (ids[:-LOOKAHEAD_TOKENS], ids[-LOOKAHEAD_TOKENS:])
