"""The flow against `flow_encoder.npz`, `estimator.npz` and `flow_mel.npz`: every layer that was
recorded, then the mel of every call.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_FRAMES, CHUNK_TOKENS, LOOKAHEAD_TOKENS, MEL_FRAMES_PER_TOKEN
from services.token2wav.flow.flow import Flow, VoicePrompt, load_flow
from services.token2wav.flow.solver import time_grid
from services.token2wav.flow.stream_cache import CachedPass, chunk_mask
from services.token2wav.flow.unet.encoder import relative_positions
from services.token2wav.flow.unet.estimator import Mask
from tools.verify.recording import Recipe, Recording, compare_file
from tools.verify.report import Report


def verify(directory: Path, report: Report) -> None:
    """Recompute every output array of the three files and compare; what has no recipe, or no array,
    is a row too.
    """
    flow = load_flow(ModelDirectory(directory), torch.device("cpu"))
    for file, check in (("flow_encoder.npz", _encoder), ("estimator.npz", _estimator), ("flow_mel.npz", _mel)):
        compare_file(directory, file, report, partial(check, flow))


def _encoder(flow: Flow, arrays: Recording) -> None:
    ids = _ids(arrays)
    voice = VoicePrompt(ids[:0], torch.zeros(0, 80), arrays.tensor("spk_embedding")[0])
    encoder, count = flow.encoder, ids.numel()
    nothing = torch.zeros(1, LOOKAHEAD_TOKENS, flow.config.encoder_width)
    positions = relative_positions(count, count, flow.config.encoder_width, flow.device)

    def embedded() -> Tensor:
        return flow.network.embed(ids)[None]

    def looked_ahead() -> Tensor:
        return encoder.pre_lookahead(embedded(), nothing, CachedPass.whole(1))

    def encoded(chunked: bool, context: bool) -> Tensor:
        x = embedded()
        x, ahead = (x[:, :-LOOKAHEAD_TOKENS], x[:, -LOOKAHEAD_TOKENS:]) if context else (x, nothing)
        return encoder(x, ahead, [0], CachedPass.whole(1), chunked=chunked)

    arrays.compare_all({
        "spk_affine_out": (1e-6, lambda: flow.speaker(voice)[None]),
        "embed_out": (1e-5, embedded),
        "pos_emb_head": (1e-6, lambda: positions[None, : arrays["pos_emb_head"].shape[1]]),
        "pre_lookahead_out": (1e-5, looked_ahead),
        "layer0_out": (2e-5, lambda: encoder.layers[0](looked_ahead(), CachedPass.whole(1), [positions])),
        "enc_offline": (2e-5, lambda: encoded(False, False)),
        "enc_streaming": (2e-5, lambda: encoded(True, False)),
        "enc_ctx_offline": (2e-5, lambda: encoded(False, True)),
        "enc_ctx_streaming": (2e-5, lambda: encoded(True, True)),
        "mu_offline": (2e-5, lambda: flow.mu([ids], [ids[:0]], [0], CachedPass.whole(1))),
    })  # fmt: skip


def _estimator(flow: Flow, arrays: Recording) -> None:
    given = {name: arrays.tensor(name) for name in ("x", "mask", "mu", "t", "spks", "cond", "mask_partial")}
    streaming = chunk_mask(given["x"].shape[2], CHUNK_FRAMES, flow.device)
    partial_mask = given | {"mask": given["mask_partial"]}
    arrays.compare_all({
        "time_sinusoid": (2e-5, lambda: flow.estimator.time_sinusoid(given["t"])),
        "time_emb": (2e-5, lambda: flow.estimator.time_embedding(given["t"])),
        "out_offline": (2e-5, lambda: velocity(flow, given, None)[2]),
        "out_streaming": (2e-5, lambda: velocity(flow, given, streaming)[2]),
        "out_offline_mask_partial": (2e-5, lambda: velocity(flow, partial_mask, None)[2]),
    })  # fmt: skip


def velocity(flow: Flow, given: Mapping[str, Tensor], allowed: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Of the torch path's estimator: its joined inputs [rows, frames, channels], the embedding of
    the time, and the velocity [rows, 80, frames]. given: the published inputs by name. allowed:
    whether a query may see a key, None: always.
    """
    rows, _, frames = given["x"].shape
    speaker = given["spks"][:, :, None].expand(-1, -1, frames)
    joined = torch.cat((given["x"], given["mu"], speaker, given["cond"]), dim=1).transpose(1, 2)
    time = flow.estimator.time_embedding(given["t"])
    mask = Mask(given["mask"].transpose(1, 2), allowed)
    return joined, time, flow.estimator(joined, time, CachedPass.whole(rows), mask).transpose(1, 2)


def _mel(flow: Flow, arrays: Recording) -> None:
    ids, prompt = _ids(arrays), arrays["prompt_token"].shape[1]
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
        arrays.use(f"call{at}_token_offset")
        recipes[f"mel_chunk{at}_full"] = (5e-5, partial(call, at))
    arrays.compare_all(recipes)


def joined_blocks(flow: Flow, voice: VoicePrompt, tokens: Tensor) -> Tensor:
    """The mel [80, 2T] of the generated tokens from kept state, block by block."""
    ids, state, mels = torch.cat((voice.tokens, tokens)), flow.start(voice), []
    for first in range(0, ids.numel(), CHUNK_TOKENS):
        end = first + CHUNK_TOKENS
        mels += flow.blocks([state], [ids[first:end]], [ids[end : end + LOOKAHEAD_TOKENS]])
    return torch.cat([mel for mel in mels if mel is not None], dim=1)[:, voice.mel.shape[0] :]


def _ids(arrays: Recording) -> Tensor:
    """Prompt and generated token ids, int64 [P + T]."""
    return torch.from_numpy(np.concatenate((arrays["prompt_token"][0], arrays["token"][0]))).long()
