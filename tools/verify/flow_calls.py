"""Calls of a flow with what a recording holds, whichever network the flow has."""

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from cosyserve.spec import CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_BINS
from services.token2wav.flow.attention import Mask
from services.token2wav.flow.flow import Flow, VoicePrompt, with_lookahead
from services.token2wav.flow.solver import ROWS, Solver
from services.token2wav.flow.stream_cache import CachedPass
from tools.verify.recording import Recording


def token_ids(arrays: Recording) -> Tensor:
    """Prompt and generated token ids, int64 [P + T]."""
    return torch.from_numpy(np.concatenate((arrays["prompt_token"][0], arrays["token"][0]))).long()


def without_prompt(arrays: Recording) -> VoicePrompt:
    """The recorded speaker alone."""
    return VoicePrompt(torch.zeros(0, dtype=torch.long), torch.zeros(0, 80), arrays.tensor("spk_embedding")[0])


def joined_inputs(given: Mapping[str, Tensor]) -> Tensor:
    """The published inputs by name -> those of `VelocityEstimator`, [rows, frames, 320]."""
    speaker = given["spks"][:, :, None].expand(-1, -1, given["x"].shape[2])
    return torch.cat((given["x"], given["mu"], speaker, given["cond"]), dim=1).transpose(1, 2)


def velocity(flow: Flow, given: Mapping[str, Tensor], allowed: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Of the torch path's estimator: its joined inputs [rows, frames, channels], the embedding of
    the time, and the velocity [rows, 80, frames]. given: the published inputs by name. allowed:
    whether a query may see a key, None: always.
    """
    joined = joined_inputs(given)
    time = flow.estimator.time_embedding(given["t"])
    mask = Mask(given["mask"].transpose(1, 2), allowed)
    made = flow.estimator.velocity(joined, flow.estimator.times(time), CachedPass.whole(joined.shape[0]), mask)
    return joined, time, made.transpose(1, 2)


def joined_blocks(flow: Flow, voice: VoicePrompt, tokens: Tensor) -> Tensor:
    """The mel [80, 2T] of the generated tokens from kept state, block by block."""
    ids, state, mels = torch.cat((voice.tokens, tokens)), flow.start(voice), []
    for first in range(0, ids.numel(), CHUNK_TOKENS):
        end = first + CHUNK_TOKENS
        mels += flow.blocks([state], [ids[first:end]], [ids[end : end + LOOKAHEAD_TOKENS]])
    return torch.cat([mel for mel in mels if mel is not None], dim=1)[:, voice.mel.shape[0] :]


class SolverRun:
    """The offline run of a whole sentence, to be seen step by step."""

    def __init__(self, flow: Flow, voice: VoicePrompt, tokens: Tensor) -> None:
        self._flow, self._solver = flow, Solver(flow.estimator, flow.config.guidance, flow.device)
        ids, ahead = with_lookahead(voice, tokens, final=True)
        mu = flow.mu([ids], [ahead], [0], CachedPass.whole(1))
        frames = mu.shape[1]
        condition = torch.nn.functional.pad(voice.mel, (0, 0, 0, frames - voice.mel.shape[0]))
        self._inputs = Solver.inputs(mu, flow.speaker(voice)[None], condition[None])
        self._noise = flow.noise[None, :frames]

    def first_velocity(self) -> Tensor:
        """Of both rows at the first step, [2, 80, frames]."""
        rows = self._inputs.clone()
        rows[..., :MEL_BINS] = self._noise[:, None]
        times = self._flow.estimator.times(self._flow.estimator.time_embedding(torch.zeros(1)))
        return self._flow.estimator.velocity(rows.flatten(0, 1), times, CachedPass.whole(ROWS)).transpose(1, 2)

    def after(self, steps: int) -> Tensor:
        """Where the sentence stands after so many Euler steps, [1, 80, frames]."""
        x = self._noise
        for at in range(steps):
            x = self._solver.step(at, x, self._inputs, CachedPass.whole(ROWS))
        return x.transpose(1, 2)
