"""The layers of CosyVoice3's flow against `flow_encoder.npz` and `estimator.npz`."""

from collections.abc import Mapping
from functools import cache, partial

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, LOOKAHEAD_TOKENS, MEL_BINS
from services.token2wav.flow.attention import Mask, chunk_mask
from services.token2wav.flow.dit.block import modulated
from services.token2wav.flow.dit.estimator import DitNetwork
from services.token2wav.flow.dit.weights import BLOCK_MODULATIONS
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.stream_cache import CachedPass
from tools.verify.flow_calls import joined_inputs, token_ids, velocity, without_prompt
from tools.verify.recording import Recipe, Recording

_FULL_ATTENTION = (
    *("input_proj_out", "conv_pos1_out", "conv_pos2_out", "input_embed_out", "block0_modulation", "block0_norm"),
    *("block0_q", "block0_q_rotated", "block0_k_rotated", "block0_attn_out", "block0_ff_out", "block0_out"),
    *("last_block_out", "final_modulation", "norm_out"),
)
"""Arrays of `estimator.npz` that `layers` makes under full attention."""


def encoder(flow: Flow, network: DitNetwork, arrays: Recording) -> None:
    """Compare every array of `flow_encoder.npz`."""
    ids = token_ids(arrays)
    nothing = torch.zeros(1, LOOKAHEAD_TOKENS, MEL_BINS)

    def embedded() -> Tensor:
        return network.embed(ids)[None]

    def looked_ahead(context: bool) -> Tensor:
        x = embedded()
        x, ahead = (x[:, :-LOOKAHEAD_TOKENS], x[:, -LOOKAHEAD_TOKENS:]) if context else (x, nothing)
        return network.look_ahead(x, ahead, CachedPass.whole(1))

    def mu(context: bool) -> Tensor:
        known = ids.numel() - (LOOKAHEAD_TOKENS if context else 0)
        return flow.mu([ids[:known]], [ids[known:]], [0], CachedPass.whole(1))

    arrays.compare_all({
        "spk_affine_out": (1e-6, lambda: flow.speaker(without_prompt(arrays))[None]),
        "embed_out": (0.0, embedded),
        "pre_lookahead_out": (1e-5, lambda: looked_ahead(False)),
        "pre_lookahead_ctx_out": (1e-5, lambda: looked_ahead(True)),
        "mu_offline": (1e-5, lambda: mu(False)),
        "mu_ctx": (1e-5, lambda: mu(True)),
    })  # fmt: skip


def estimator(flow: Flow, network: DitNetwork, arrays: Recording) -> None:
    """Compare every array of `estimator.npz`."""
    given = {name: arrays.tensor(name) for name in ("x", "mask", "mu", "t", "spks", "cond", "mask_partial")}
    streaming = chunk_mask(given["x"].shape[2], CHUNK_FRAMES, flow.device)
    partial_mask = given | {"mask": given["mask_partial"]}

    @cache
    def full() -> Mapping[str, Tensor]:
        return layers(network, given, None)

    @cache
    def chunked() -> Mapping[str, Tensor]:
        return layers(network, given, streaming)

    recipes: dict[str, Recipe] = {
        "time_sinusoid": (2e-5, lambda: network.estimator.time_sinusoid(given["t"])),
        "time_emb": (2e-5, lambda: network.estimator.time_embedding(given["t"])),
        "out_offline": (2e-5, lambda: velocity(flow, given, None)[2]),
        "out_streaming": (2e-5, lambda: velocity(flow, given, streaming)[2]),
        "out_offline_mask_partial": (2e-5, lambda: velocity(flow, partial_mask, None)[2]),
        "out_streaming_mask_partial": (2e-5, lambda: velocity(flow, partial_mask, streaming)[2]),
        "rope_freqs_head": (2e-5, lambda: full()["rope_freqs"][:, : arrays["rope_freqs_head"].shape[1]]),
        "block0_out_streaming": (2e-5, lambda: chunked()["block0_out"]),
        "last_block_out_streaming": (2e-5, lambda: chunked()["last_block_out"]),
    }
    for name in _FULL_ATTENTION:
        recipes[name] = (2e-5, partial(lambda name: full()[name], name))
    arrays.compare_all(recipes)


@torch.inference_mode()
def layers(network: DitNetwork, given: Mapping[str, Tensor], allowed: Tensor | None) -> dict[str, Tensor]:
    """What the layers of the estimator hand on, by the names of the recording. given: the published
    inputs by name. allowed: whether a query may see a key, None: always.
    """
    estimator, inputs = network.estimator, joined_inputs(given)
    rows, frames, _ = inputs.shape
    mask = Mask(given["mask"].transpose(1, 2), allowed)
    *modulations, last = estimator.times(estimator.time_embedding(given["t"]))
    rotation = estimator.rotation(frames, CachedPass.whole(rows))
    projected = estimator.inputs.project(inputs)
    first, second = estimator.inputs.positions(projected, CachedPass.whole(rows))
    x = second + projected
    made = {"input_proj_out": projected, "conv_pos1_out": first, "conv_pos2_out": second, "input_embed_out": x}
    made |= {"rope_freqs": rotation.angles.repeat_interleave(2, dim=2), "block0_modulation": modulations[0][:, 0]}

    block = estimator.blocks[0]
    shift, scale, gate, feed_shift, feed_scale, _ = modulations[0].chunk(BLOCK_MODULATIONS, dim=2)
    norm = modulated(x, shift, scale)
    queries, *_ = block.heads(norm).clone()
    rotated_queries, rotated_keys, _ = rotation.of_first_head(block.heads(norm))
    attended = block.attention(norm, rotation, CachedPass.whole(rows), mask)
    fed = block.feed_forward(modulated(x + gate * attended, feed_shift, feed_scale))
    made |= {"block0_norm": norm, "block0_attn_out": attended, "block0_ff_out": fed}
    made |= {
        name: heads.transpose(1, 2).flatten(2)
        for name, heads in (
            ("block0_q", queries), ("block0_q_rotated", rotated_queries), ("block0_k_rotated", rotated_keys)
        )
    }  # fmt: skip

    outs = []
    for block, modulation in zip(estimator.blocks, modulations, strict=True):
        x = block(x, modulation, rotation, CachedPass.whole(rows), mask)
        outs.append(x)
    made |= {"block0_out": outs[0], "last_block_out": x, "final_modulation": last[:, 0]}
    return made | {"norm_out": estimator.last_norm(x, last)}
