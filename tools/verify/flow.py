"""The flow against `flow_encoder.npz`, `estimator.npz` and `flow_mel.npz`: every layer that was
recorded, then the mel of every call.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from cosyserve.errors import ModelError
from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.flow import Flow, VoicePrompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.solver import time_grid
from services.token2wav.inputs.chunking import schedule
from services.token2wav.inputs.request import Hops, Profile
from tools.verify import flow_dit, flow_unet
from tools.verify.flow_calls import SolverRun, joined_blocks, token_ids
from tools.verify.recording import Recipe, Recording, compare_file
from tools.verify.report import Report

_LAYERS: Mapping[str, Any] = {"conformer-unet": flow_unet, "dit": flow_dit}
"""The module that knows the layers of a network, by `Generation.flow_network`."""


def verify(directory: Path, report: Report) -> None:
    """Recompute every output array of the three files and compare; what has no recipe, or no array,
    is a row too. Raises ModelError for a network whose layers are not known here.
    """
    model = ModelDirectory(directory)
    name = generation_of(model).flow_network
    if name not in _LAYERS:
        raise ModelError(f"{directory}: the layers of the flow's network {name!r} are not known to verify")
    flow, layers = load_flow(model, torch.device("cpu")), _LAYERS[name]
    for file, check in (("flow_encoder.npz", layers.encoder), ("estimator.npz", layers.estimator)):
        compare_file(directory, file, report, partial(check, flow, flow.network))
    compare_file(directory, "flow_mel.npz", report, partial(_mel, flow))


def _mel(flow: Flow, arrays: Recording) -> None:
    ids, prompt = token_ids(arrays), arrays["prompt_token"].shape[1]
    voice = VoicePrompt(ids[:prompt], arrays.tensor("prompt_feat")[0], arrays.tensor("spk_embedding")[0])
    tokens, frames = ids[prompt:], MEL_FRAMES_PER_TOKEN * ids.numel()

    def call(at: int) -> Tensor:
        count, streaming, final = (arrays[f"call{at}_{name}"].item() for name in ("n_tokens", "streaming", "finalize"))
        return flow.prefix(voice, tokens[: int(count)], streaming=bool(streaming), final=bool(final))[None]

    recipes: dict[str, Recipe] = {
        "rand_noise": (0.0, lambda: flow.noise[:frames].T[None]),
        "t_span": (1e-7, time_grid),
        "mel_offline": (5e-5, lambda: flow.prefix(voice, tokens, streaming=False, final=True)[None]),
        "mel_streaming_finalize": (5e-5, lambda: flow.prefix(voice, tokens, streaming=True, final=True)[None]),
        "mel_streaming_finalize (blocks)": (5e-5, lambda: joined_blocks(flow, voice, tokens)[None]),
    }
    for at in range(int(arrays["n_calls"])):
        arrays.use(*(f"call{at}_{name}" for name in ("n_tokens", "token_offset", "streaming", "finalize")))
        # The last call is an offline one, and some bundles hold it only once.
        row = f"mel_chunk{at}_full"
        recipes[row if row in arrays else f"mel_offline (call {at})"] = (5e-5, partial(call, at))
    run = SolverRun(flow, voice, tokens)
    once: dict[str, Recipe] = {
        "velocity_step0": (5e-5, run.first_velocity),
        "x_after_step1": (5e-5, lambda: run.after(1)),
        "x_after_step5": (5e-5, lambda: run.after(5)),
        "hop_after": (0.0, lambda: hop_after(prompt, tokens.numel())),
    }
    arrays.compare_all(recipes | {row: recipe for row, recipe in once.items() if row in arrays})


def hop_after(prompt: int, tokens: int) -> int:
    """The length of the hop that would follow the last one which is not the end of the sentence."""
    plan, last = schedule(Profile.UPSTREAM, prompt, Hops()), None
    while (hop := plan.next(last, tokens, finished=True)) is not None and not hop.final:
        last = hop
    return plan.needed(last) - LOOKAHEAD_TOKENS - (0 if last is None else last.end)
