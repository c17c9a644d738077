"""Independent readers of converted checkpoints: numpy alone, from the formats' descriptions,
sharing no code with what writes them.

`tensors` parses safetensors; `tensorrt_llm_scores` and `qwen2_scores` run the decoder in float64
and give logits of every position. Sources: compatibility specification sections 3.1 and 7.3; rotary
embedding: Su et al., 2021.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def tensors(path: Path) -> dict[str, Array]:
    """All tensors of a safetensors file as float64."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    tensors_by_name = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        start, end = (8 + size + offset for offset in entry["data_offsets"])
        raw = data[start:end]
        if entry["dtype"] == "BF16":
            halves = np.frombuffer(raw, np.uint16)
            values = np.left_shift(halves.astype(np.uint32), 16).view(np.float32)
        else:
            values = np.frombuffer(raw, {"F32": np.float32, "F16": np.float16}[entry["dtype"]])
        tensors_by_name[name] = values.astype(np.float64).reshape(entry["shape"])
    return tensors_by_name


def tensorrt_llm_scores(directory: Path, ids: Sequence[int]) -> Array:
    """Logits [n, rows] of a TensorRT-LLM checkpoint for ids of its vocabulary; its head has no
    bias.
    """
    config = json.loads((directory / "config.json").read_text())
    given = tensors(directory / "rank0.safetensors")
    assert config["position_embedding_type"] == "rope_gpt_neox"
    assert config["hidden_act"] == "silu"
    heads, kv_heads, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_size"]
    widths = np.cumsum([heads * size, kv_heads * size])

    def layer(index: int, x: Array, attend: Callable[[Array, Array, Array], Array]) -> Array:
        at = f"transformer.layers.{index}"
        y = _norm(x, given[f"{at}.input_layernorm.weight"], config["norm_epsilon"])
        joined = y @ given[f"{at}.attention.qkv.weight"].T + given[f"{at}.attention.qkv.bias"]
        query, key, value = np.split(joined, widths, axis=1)
        x = x + attend(query, key, value) @ given[f"{at}.attention.dense.weight"].T
        y = _norm(x, given[f"{at}.post_layernorm.weight"], config["norm_epsilon"])
        # the branch named fc is the one that is activated
        activated = _silu(y @ given[f"{at}.mlp.fc.weight"].T)
        return x + (activated * (y @ given[f"{at}.mlp.gate.weight"].T)) @ given[f"{at}.mlp.proj.weight"].T

    attend = _attention(heads, kv_heads, size, config["rotary_base"], len(ids))
    x = given["transformer.vocab_embedding.weight"][list(ids)]
    for index in range(config["num_hidden_layers"]):
        x = layer(index, x, attend)
    return _norm(x, given["transformer.ln_f.weight"], config["norm_epsilon"]) @ given["lm_head.weight"].T


def qwen2_scores(config: Mapping[str, object], given: Mapping[str, Array], embedded: Array) -> Array:
    """Logits [n, rows] of weights by Hugging Face's names, for input embeddings [n, hidden]; with a
    bias where `lm_head.bias` is.
    """
    heads, kv_heads, size = (
        int(str(config[key])) for key in ("num_attention_heads", "num_key_value_heads", "head_dim")
    )
    epsilon = float(str(config["rms_norm_eps"]))
    attend = _attention(heads, kv_heads, size, float(str(config["rope_theta"])), len(embedded))
    x = embedded
    for index in range(int(str(config["num_hidden_layers"]))):
        at = f"model.layers.{index}"
        y = _norm(x, given[f"{at}.input_layernorm.weight"], epsilon)
        projected = [
            y @ given[f"{at}.self_attn.{part}_proj.weight"].T + given[f"{at}.self_attn.{part}_proj.bias"]
            for part in "qkv"
        ]
        x = x + attend(*projected) @ given[f"{at}.self_attn.o_proj.weight"].T
        y = _norm(x, given[f"{at}.post_attention_layernorm.weight"], epsilon)
        gated = _silu(y @ given[f"{at}.mlp.gate_proj.weight"].T) * (y @ given[f"{at}.mlp.up_proj.weight"].T)
        x = x + gated @ given[f"{at}.mlp.down_proj.weight"].T
    return _norm(x, given["model.norm.weight"], epsilon) @ given["lm_head.weight"].T + given.get("lm_head.bias", 0.0)


def log_softmax(scores: Array) -> Array:
    """Over the last axis."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _norm(x: Array, weight: Array, epsilon: float) -> Array:
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + epsilon) * weight


def _silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def _attention(
    heads: int, kv_heads: int, size: int, base: float, length: int
) -> Callable[[Array, Array, Array], Array]:
    turn = np.exp(1j * np.outer(np.arange(length), base ** (-np.arange(0, size, 2) / size)))[:, None]
    future = np.triu(np.full((length, length), -np.inf), 1)

    def rotate(x: Array, count: int) -> Array:
        # GPT-NeoX pairs: entry i turns with entry i + size / 2.
        split = x.reshape(length, count, 2, size // 2)
        turned = (split[:, :, 0] + 1j * split[:, :, 1]) * turn
        return np.concatenate([turned.real, turned.imag], axis=-1)

    def attend(query: Array, key: Array, value: Array) -> Array:
        q, k, v = rotate(query, heads), rotate(key, kv_heads), value.reshape(length, kv_heads, size)
        out = np.empty((length, heads, size))
        for head in range(heads):
            shared = head * kv_heads // heads
            weights = np.exp(log_softmax(q[:, head] @ k[:, shared].T / np.sqrt(size) + future))
            out[:, head] = weights @ v[:, shared]
        return out.reshape(length, -1)

    return attend
