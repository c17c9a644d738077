"""What each layer of the torch path hands on, under the names that the graphs use, for a comparison
layer by layer.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from services.token2wav.engines.shapes import SOURCE_MARGIN
from services.token2wav.flow.encoder import ConformerLayer, Encoder
from services.token2wav.flow.estimator import Mask, Resnet, Transformer
from services.token2wav.flow.stream_cache import CachedPass
from services.token2wav.vocoder.hift import FilterNetwork, Level, ResidualBlock
from services.token2wav.vocoder.source import F0Predictor
from tools.model.comparison.graph_cases import Case, Reference
from tools.model.comparison.method_outputs import Heard, listening
from tools.model.graphs.graph import Array, Layer


@torch.inference_mode()
def heard_layers(reference: Reference, case: Case, layers: list[Layer]) -> dict[str, Array]:
    """The layers of `case` that the torch path has under a name of its own, in the order of
    computation.
    """
    given = {name: torch.from_numpy(array) for name, array in case.inputs.items()}
    if case.component == "estimator":
        return _estimator(reference, given, layers)
    if case.component == "filter":
        return _filter(reference, given, layers)
    if case.component == "encoder":
        return _encoder(reference, given, layers)
    with listening((F0Predictor, "layer")) as heard:
        reference.vocoder.f0(given["mel"])
    return _named(layers, heard, {"F0Predictor.layer": ("condnet.",)})


def _named(layers: list[Layer], heard: Heard, kinds: Mapping[str, tuple[str, ...]]) -> dict[str, Array]:
    """kinds: of which method the results are those layers whose names contain one of the parts."""
    arrays: dict[str, Array] = {}
    for kind, parts in kinds.items():
        results = [array for name, array in heard if name == kind]
        names = [layer.name for layer in layers if any(part in layer.name for part in parts)]
        arrays |= dict(zip(names, results, strict=True))
    return {layer.name: arrays[layer.name] for layer in layers if layer.name in arrays}


def _estimator(reference: Reference, given: dict[str, Tensor], layers: list[Layer]) -> dict[str, Array]:
    frames = given["x"].shape[2]
    joined = torch.cat(
        (given["x"], given["mu"], given["spks"][:, :, None].expand(-1, -1, frames), given["cond"]), dim=1
    ).transpose(1, 2)
    estimator = reference.flow.estimator
    with listening((Resnet, "__call__"), (Transformer, "__call__")) as heard:
        time = estimator.time_embedding(given["t"])
        allowed = given.get("attention", torch.ones(frames, frames, dtype=torch.bool))
        estimator(joined, time, CachedPass.whole(joined.shape[0]), Mask(given["mask"].transpose(1, 2), allowed))
    blocks = [layer for layer in layers if layer.name.startswith(("down", "mid", "up"))]
    resnets = [layer.name for layer in blocks if layer.name.endswith(".0") and layer.name.count(".") == 2]
    transformers = [layer.name for layer in blocks if layer.name.count(".") == 3]
    arrays = {"inputs": joined.numpy(), "time_mlp": time.numpy()}
    for names, kind in ((resnets, "Resnet.__call__"), (transformers, "Transformer.__call__")):
        arrays |= dict(zip(names, [array for name, array in heard if name == kind], strict=True))
    return {layer.name: arrays[layer.name] for layer in layers if layer.name in arrays}


def _encoder(reference: Reference, given: dict[str, Tensor], layers: list[Layer]) -> dict[str, Array]:
    tokens = given["mask"].shape[2]
    chunked = not bool(given["attention"].all())
    kinds = {
        "Encoder.pre_lookahead": ("pre_lookahead",),
        "ConformerLayer.__call__": ("encoders.",),
    }
    rows = []
    for row, known in zip(given["tokens"].long(), given["known"], strict=True):
        look = int(known[tokens:].sum())
        with listening((ConformerLayer, "__call__"), (Encoder, "pre_lookahead")) as heard:
            reference.flow.mu([row[:tokens]], [row[tokens : tokens + look]], [0], CachedPass.whole(1), chunked=chunked)
        rows.append(_named(layers, heard, kinds))
    return {name: torch.cat([torch.from_numpy(row[name]) for row in rows]).numpy() for name in rows[0]}


def _filter(reference: Reference, given: dict[str, Tensor], layers: list[Layer]) -> dict[str, Array]:
    mel, source = given["mel"], given["source"][:, SOURCE_MARGIN:-SOURCE_MARGIN]
    methods = (
        (ResidualBlock, "__call__"),
        (Level, "__call__"),
        (FilterNetwork, "conv_pre"),
        (FilterNetwork, "conv_post"),
    )
    with listening(*methods) as heard:
        reference.vocoder.filter(mel, source, 0, mel.shape[2])
    levels = [layer for layer in layers if not layer.name.endswith(".merged")]
    return _named(
        levels,
        heard,
        {
            "ResidualBlock.__call__": ("resblocks.",),
            "Level.__call__": ("levels.",),
            "FilterNetwork.conv_pre": ("conv_pre",),
            "FilterNetwork.conv_post": ("conv_post",),
        },
    )
