"""Scales for 8-bit products: how large the inputs of each linear map become while the model itself
generates.

The float32 graph says the voice's prompt, or tokens at random where the model directory has no
voice, at each of the ten times of the flow, and the largest magnitude of each input is kept.
"""

from pathlib import Path

import numpy as np
import onnxruntime
import torch
from onnx import TensorProto, helper

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import CHUNK_FRAMES, MEL_BINS, MEL_FRAMES_PER_TOKEN, SPEAKER_DIMENSION
from services.token2wav.flow.attention import chunk_mask
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.loading import load_flow
from services.token2wav.flow.network import NetworkConfig
from services.token2wav.flow.solver import ROWS, euler_schedule, noise_table
from services.token2wav.flow.stream_cache import CachedPass
from tools.model.graphs.graph import Array
from tools.model.graphs.velocity_graph import VelocityGraph

FRAMES = 300
_HEADROOM = 1.05


def measured(
    graph: VelocityGraph, config: NetworkConfig, mu: Array, condition: Array, speaker: Array
) -> dict[str, float]:
    """Largest magnitude of the input of each 8-bit map of a float32 graph, a twentieth added.

    mu, condition: float32 [80, frames] of what is said; speaker: float32 [80].
    """
    needed, model = graph.largest_inputs_needed, graph.model({})
    values = sorted(set(needed.values()))
    for value in values:
        model.graph.node.append(helper.make_node("ReduceMax", [f"{value}.magnitude"], [f"{value}.largest"], keepdims=0))
        model.graph.node.insert(len(model.graph.node) - 1, helper.make_node("Abs", [value], [f"{value}.magnitude"]))
        model.graph.output.append(helper.make_tensor_value_info(f"{value}.largest", TensorProto.FLOAT, []))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    frames = mu.shape[1]
    given = {
        "mask": np.ones((ROWS, 1, frames), np.float32),
        "mu": np.stack([mu, np.zeros_like(mu)]),
        "spks": np.stack([speaker, np.zeros_like(speaker)]),
        "cond": np.stack([condition, np.zeros_like(condition)]),
        "attention": chunk_mask(frames, CHUNK_FRAMES, torch.device("cpu")).numpy(),
    }
    x = config.temperature * noise_table().numpy()[:, :frames]
    largest = dict.fromkeys(values, 0.0)
    for t, dt in euler_schedule():
        outputs = session.run(None, given | {"x": np.stack([x, x]), "t": np.full(ROWS, t, np.float32)})
        for value, output in zip(values, outputs[1:], strict=True):
            largest[value] = max(largest[value], float(output))
        x = x + np.float32(dt) * ((1 + config.guidance) * outputs[0][0] - config.guidance * outputs[0][1])
    return {name: _HEADROOM * largest[value] for name, value in needed.items()}


def scales_of(model: Path, graph: VelocityGraph, config: NetworkConfig) -> dict[str, float]:
    """The scales while the model says the tokens of its `flow_mel.npz`, or without that file ids at
    random from seed 0 without a prompt.
    """
    flow = load_flow(ModelDirectory(model), torch.device("cpu"))
    path = model / "flow_mel.npz"
    if path.exists():
        with np.load(path, allow_pickle=False) as arrays:
            voice = VoicePrompt(
                torch.from_numpy(arrays["prompt_token"][0]).long(),
                torch.from_numpy(arrays["prompt_feat"][0]),
                torch.from_numpy(arrays["spk_embedding"][0]),
            )
            ids = torch.cat([voice.tokens, torch.from_numpy(arrays["token"][0]).long()])[
                : FRAMES // MEL_FRAMES_PER_TOKEN
            ]
    else:
        drawn = torch.Generator().manual_seed(0)
        voice = VoicePrompt(
            torch.zeros(0, dtype=torch.long), torch.zeros(0, MEL_BINS), torch.randn(SPEAKER_DIMENSION, generator=drawn)
        )
        ids = torch.randint(0, config.vocabulary, (FRAMES // MEL_FRAMES_PER_TOKEN,), generator=drawn)
    with torch.inference_mode():
        mu = flow.mu([ids], [ids[:0]], [0], CachedPass.whole(1), chunked=True)[0].T.numpy()
        condition = np.zeros_like(mu)
        condition[:, : voice.mel.shape[0]] = voice.mel.T.numpy()[:, : mu.shape[1]]
        return measured(graph, config, mu, condition, flow.speaker(voice).numpy())
