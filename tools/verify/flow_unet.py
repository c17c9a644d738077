"""The layers of CosyVoice2's flow against `flow_encoder.npz` and `estimator.npz`."""

import torch
from torch import Tensor

from cosyserve.spec import CHUNK_FRAMES, LOOKAHEAD_TOKENS
from services.token2wav.flow.attention import chunk_mask
from services.token2wav.flow.flow import Flow
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.flow.unet.encoder import relative_positions
from services.token2wav.flow.unet.estimator import UnetNetwork
from tools.verify.flow_calls import token_ids, velocity, without_prompt
from tools.verify.recording import Recording


def encoder(flow: Flow, network: UnetNetwork, arrays: Recording) -> None:
    """Compare every array of `flow_encoder.npz`."""
    ids, width = token_ids(arrays), network.encoder.width
    count = ids.numel()
    nothing = torch.zeros(1, LOOKAHEAD_TOKENS, width)
    positions = relative_positions(count, count, width, flow.device)

    def embedded() -> Tensor:
        return network.embed(ids)[None]

    def looked_ahead() -> Tensor:
        return network.encoder.look_ahead(embedded(), nothing, CachedPass.whole(1))

    def encoded(chunked: bool, context: bool) -> Tensor:
        x = embedded()
        x, ahead = (x[:, :-LOOKAHEAD_TOKENS], x[:, -LOOKAHEAD_TOKENS:]) if context else (x, nothing)
        return network.encoder(x, ahead, [0], CachedPass.whole(1), chunked=chunked)

    arrays.compare_all({
        "spk_affine_out": (1e-6, lambda: flow.speaker(without_prompt(arrays))[None]),
        "embed_out": (1e-5, embedded),
        "pos_emb_head": (1e-6, lambda: positions[None, : arrays["pos_emb_head"].shape[1]]),
        "pre_lookahead_out": (1e-5, looked_ahead),
        "layer0_out": (2e-5, lambda: network.encoder.layers[0](looked_ahead(), CachedPass.whole(1), [positions])),
        "enc_offline": (2e-5, lambda: encoded(False, False)),
        "enc_streaming": (2e-5, lambda: encoded(True, False)),
        "enc_ctx_offline": (2e-5, lambda: encoded(False, True)),
        "enc_ctx_streaming": (2e-5, lambda: encoded(True, True)),
        "mu_offline": (2e-5, lambda: flow.mu([ids], [ids[:0]], [0], CachedPass.whole(1))),
    })  # fmt: skip


def estimator(flow: Flow, network: UnetNetwork, arrays: Recording) -> None:
    """Compare every array of `estimator.npz`."""
    given = {name: arrays.tensor(name) for name in ("x", "mask", "mu", "t", "spks", "cond", "mask_partial")}
    streaming = chunk_mask(given["x"].shape[2], CHUNK_FRAMES, flow.device)
    partial_mask = given | {"mask": given["mask_partial"]}
    arrays.compare_all({
        "time_sinusoid": (2e-5, lambda: network.estimator.time_sinusoid(given["t"])),
        "time_emb": (2e-5, lambda: network.estimator.time_embedding(given["t"])),
        "out_offline": (2e-5, lambda: velocity(flow, given, None)[2]),
        "out_streaming": (2e-5, lambda: velocity(flow, given, streaming)[2]),
        "out_offline_mask_partial": (2e-5, lambda: velocity(flow, partial_mask, None)[2]),
    })  # fmt: skip
