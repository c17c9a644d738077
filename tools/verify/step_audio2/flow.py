"""The flow of Step-Audio2 against `inputs.npz`, `encoder.npz`, `mel.npz`, `caches.npz` and
`stream.npz`: offline, and call by call with the reference's cut and noise.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from cosyserve.spec import CHUNK_TOKENS, EULER_STEPS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.past import REFERENCE_CUT
from services.token2wav.flow.solver import time_grid
from services.token2wav.flow.stream_cache import StreamCache
from services.token2wav.inputs.chunking import schedule
from services.token2wav.inputs.request import Hops, Profile
from tools.verify.recording import Recording
from tools.verify.report import Report
from tools.verify.step_audio2.listening import (
    Heard,
    ListeningCut,
    ListeningFlow,
    convolutions,
    encoder_convolutions,
    encoder_keys_values,
    keys_values,
    loaded,
)

FILES = ("inputs", "encoder", "mel", "caches", "stream")
ENCODER, FLOW = 2e-5, 5e-5
"""Tolerances of what the encoder makes, and of what the flow makes of it."""
_TRITON_FIRST = 15
_LAST_STEP = EULER_STEPS - 1


@torch.inference_mode()
def verify(directory: Path, report: Report) -> None:
    """Recompute every array of the five files; what is missing or unknown is a row too."""
    opened = {name: Recording.open(directory, f"{name}.npz", report) for name in FILES}
    files = {name: recorded for name, recorded in opened.items() if recorded is not None}
    if "inputs" not in files:
        return
    inputs = files["inputs"]
    flow = ListeningFlow(*loaded(directory), inputs.tensor("rand_noise")[0].T.contiguous())
    inputs.compare("t_span", 0.0, time_grid)
    rows = _Rows(files)
    for case in _cases(inputs):
        voice = VoicePrompt(
            inputs.tensor(f"{case}_prompt_token")[0].long(),
            inputs.tensor(f"{case}_prompt_mel")[0],
            inputs.tensor(f"{case}_spk")[0],
        )
        _case(flow, case, voice, inputs.tensor(f"{case}_token")[0].long(), rows)
    for recorded in files.values():
        recorded.report_rest()


def _cases(inputs: Recording) -> Iterator[str]:
    return (case for case in "ABCDEFGH" if f"{case}_token" in inputs)


@dataclass
class _Rows:
    """Rows of the arrays that the bundle has; others are not asked for."""

    files: Mapping[str, Recording]

    def add(self, file: str, array: str, tolerance: float, compute: Callable[[], Tensor | ArrayLike]) -> None:
        recorded = self.files.get(file)
        if recorded is not None and array.split(" ")[0] in recorded:
            recorded.compare(array, tolerance, compute)


def _case(flow: ListeningFlow, case: str, voice: VoicePrompt, tokens: Tensor, rows: _Rows) -> None:
    whole = flow.whole(voice, tokens)
    rows.add("encoder", f"{case}_offline_out", ENCODER, lambda: whole.encoded)
    rows.add("encoder", f"{case}_offline_mu", ENCODER, lambda: whole.mu)
    rows.add("mel", f"{case}_offline", FLOW, lambda: whole.mel[None])
    for step in (0, _LAST_STEP):
        rows.add(
            "mel",
            f"{case}_offline_velocity_step{step}",
            FLOW,
            partial(whole.velocities[step].transpose, 1, 2),
        )
    for name, ends in (("step", _step_ends(len(voice.tokens), len(tokens))), ("triton", _triton_ends(len(tokens)))):
        if f"{case}_{name}_calls" in rows.files["stream"]:
            _stream(flow, f"{case}_{name}", case, voice, tokens, ends, rows)
    if f"{case}_step_uncut" in rows.files["mel"]:
        ends = _step_ends(len(voice.tokens), len(tokens))
        uncut = flow.calls(voice, tokens, ends, ListeningCut(flow, cuts=False))
        rows.add("mel", f"{case}_step_uncut", FLOW, lambda: torch.cat([call.mel for call in uncut][1:], dim=1)[None])


def _step_ends(prompt: int, tokens: int) -> list[int]:
    """Where the calls of StepFun's own script end: those of profile upstream."""
    plan, ends = schedule(Profile.UPSTREAM, prompt, Hops(), whole_prompt=True), list[int]()
    hop = plan.next(None, tokens, finished=True)
    while hop is not None:
        ends.append(hop.end)
        hop = None if hop.final else plan.next(hop, tokens, finished=True)
    return ends


def _triton_ends(tokens: int) -> list[int]:
    """Where the calls of the Triton deployment end: 15, then 25, 50, 100, ... more tokens."""
    ends, hop = list[int](), _TRITON_FIRST
    while (ends[-1] if ends else 0) + hop + LOOKAHEAD_TOKENS <= tokens:
        ends.append((ends[-1] if ends else 0) + hop)
        hop = CHUNK_TOKENS if hop == _TRITON_FIRST else 2 * hop
    return [*ends, tokens]


def _stream(
    flow: ListeningFlow, name: str, case: str, voice: VoicePrompt, tokens: Tensor, ends: list[int], rows: _Rows
) -> None:
    tags, facts = _tagged(0, 0, len(voice.tokens), StreamCache()), []
    for at, call in enumerate(flow.calls(voice, tokens, ends, ListeningCut(flow)), start=-1):
        if at < 0:
            _kept(call, f"{case}_prompt_", "", rows)
            rows.add("encoder", f"{case}_prompt_out", ENCODER, partial(torch.clone, call.encoded))
            rows.add("encoder", f"{case}_prompt_mu", ENCODER, partial(torch.clone, call.mu))
            continue
        _kept(call, f"{name}_", str(at), rows)
        for array, made in (("mu", call.mu), ("out", call.encoded)):
            rows.add("encoder", f"{name}_{array}{at}", ENCODER, partial(torch.clone, made))
        rows.add("stream", f"{name}_mel{at}", FLOW, partial(call.mel.unsqueeze, 0))
        for step in (0, _LAST_STEP):
            velocity = call.velocities[step]
            rows.add("stream", f"{name}_velocity{at}_step{step}", FLOW, partial(velocity.transpose, 1, 2))
        begin, end = ends[at - 1] if at else 0, ends[at]
        before = tags.frames
        tags = _tagged(begin, end, len(voice.tokens), tags)
        last = end == len(tokens)
        given = end - begin + (0 if last else LOOKAHEAD_TOKENS)
        grown = before + MEL_FRAMES_PER_TOKEN * (end - begin)
        facts.append([begin, given, int(last), before, grown, call.steps[0].frames])
        rows.add("stream", f"{name}_tags{at}", 0.0, partial(tags.attentions[0][0][0, 0, 0, :, 0].numpy))
    rows.add("stream", f"{name}_calls", 0.0, lambda: np.array(facts))


def _tagged(begin: int, end: int, prompt: int, before: StreamCache) -> StreamCache:
    """The frames that the cut keeps, by number, after a call of the tokens `begin` to `end`; of the
    prompt, with negative numbers, where nothing was before.
    """
    first, last = (MEL_FRAMES_PER_TOKEN * at for at in ((begin, end) if before.attentions else (-prompt, 0)))
    new = torch.arange(first, last)[None, None, None, :, None]
    blocks = (*before.attentions[0], new) if before.attentions else (new,)
    return REFERENCE_CUT.kept(prompt, StreamCache(attentions=(blocks,)))


def _kept(call: Heard, prefix: str, number: str, rows: _Rows) -> None:
    """What a call left behind. prefix, number: of the arrays' names."""
    depth = len(call.steps[0].attentions)
    rows.add("caches", f"{prefix}conv{number}", FLOW, lambda: convolutions(call.steps))
    rows.add("caches", f"{prefix}enc_conv{number}", ENCODER, lambda: encoder_convolutions(call.encoder))
    rows.add("caches", f"{prefix}enc_att{number}", ENCODER, lambda: encoder_keys_values(call.encoder))
    for end, step, attention in (("step0_block0", 0, 0), (f"step{_LAST_STEP}_last", _LAST_STEP, depth - 1)):
        for array, caches in ((f"att{number}", call.steps), (f"att{number}_uncut", call.whole)):
            rows.add("caches", f"{prefix}{array}_{end}", FLOW, partial(keys_values, caches[step], attention))
