"""The TensorRT-LLM checkpoint: `config.json` and `rank0.safetensors`, from which `trtllm-build`
makes an engine.

Written without TensorRT-LLM. One format serves 0.20 and 1.0 to 1.2: both construct the same
configuration class from these keys, and refuse keys of `mapping`, `quantization` and `moe` that
they do not know, so only those are given that both know. Source: compatibility specification
section 7.3.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.model.checkpoints.hugging_face import Weights, write_side_files, write_tokenizer
from tools.model.checkpoints.llm_checkpoint import EMBEDDING, HEAD, NORM, LlmCheckpoint
from tools.model.checkpoints.tensor_file import Precision, Source
from tools.model.output.complete_directory import Assembly


def weights(checkpoint: LlmCheckpoint) -> Weights:
    """The large files."""
    return {"rank0.safetensors": checkpoint_tensors(checkpoint.tensors, checkpoint.config.layers)}


def write_small_files(checkpoint: LlmCheckpoint, assembly: Assembly, precision: Precision) -> None:
    """All but `weights`: configuration, tokenizer, and the side files that the served engine
    needs.
    """
    assembly.json("config.json", checkpoint_config(checkpoint, precision), indent=4)
    write_tokenizer(checkpoint, assembly)
    write_side_files(checkpoint, assembly)


def checkpoint_tensors(given: Mapping[str, Source], layers: int) -> dict[str, Source]:
    """Tensors by TensorRT-LLM's names, from Hugging Face's. Its `fc` is the branch that is
    activated, which is the gate.
    """
    named = {"transformer.vocab_embedding.weight": given[EMBEDDING]}
    for index in range(layers):
        theirs, ours = f"transformer.layers.{index}", f"model.layers.{index}"
        named[f"{theirs}.input_layernorm.weight"] = given[f"{ours}.input_layernorm.weight"]
        for kind in ("weight", "bias"):
            named[f"{theirs}.attention.qkv.{kind}"] = Source.stacked(
                given[f"{ours}.self_attn.{part}_proj.{kind}"] for part in "qkv"
            )
        named[f"{theirs}.attention.dense.weight"] = given[f"{ours}.self_attn.o_proj.weight"]
        named[f"{theirs}.post_layernorm.weight"] = given[f"{ours}.post_attention_layernorm.weight"]
        named[f"{theirs}.mlp.fc.weight"] = given[f"{ours}.mlp.gate_proj.weight"]
        named[f"{theirs}.mlp.gate.weight"] = given[f"{ours}.mlp.up_proj.weight"]
        named[f"{theirs}.mlp.proj.weight"] = given[f"{ours}.mlp.down_proj.weight"]
    return named | {"transformer.ln_f.weight": given[NORM], "lm_head.weight": given[HEAD]}


def checkpoint_config(checkpoint: LlmCheckpoint, precision: Precision) -> dict[str, Any]:
    """config.json of the checkpoint, for one GPU."""
    sizes = checkpoint.config
    return {
        "architecture": "Qwen2ForCausalLM",
        "dtype": precision.value,
        "logits_dtype": "float32",
        "vocab_size": checkpoint.vocabulary.rows,
        "hidden_size": sizes.hidden_size,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_size": sizes.head_size,
        "intermediate_size": sizes.intermediate_size,
        "hidden_act": "silu",
        "norm_epsilon": sizes.rms_norm_eps,
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": checkpoint.positions,
        "rotary_base": sizes.rope_theta,
        "rotary_scaling": None,
        "rotary_embedding_dim": sizes.head_size,
        "qk_layernorm": False,
        "attn_bias": True,
        "mlp_bias": False,
        "qwen_type": "qwen2",
        "seq_length": 8192,
        "tie_word_embeddings": False,
        "use_parallel_embedding": False,
        "embedding_sharding_dim": 0,
        "disable_weight_only_quant_plugin": False,
        "use_logn_attn": False,
        "num_labels": 1,
        "moe": {"num_experts": 0, "top_k": 0, "normalization_mode": 0},
        "moe_intermediate_size": 0,
        "moe_shared_expert_intermediate_size": 0,
        "runtime_defaults": None,
        "mapping": {
            "world_size": 1, "gpus_per_node": 8, "cp_size": 1, "tp_size": 1, "pp_size": 1, "moe_tp_size": 1,
            "moe_ep_size": 1
        },
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }  # fmt: skip


def is_checkpoint(path: Path) -> bool:
    """Whether `path` holds what this module writes."""
    return (path / "config.json").is_file() and (path / "rank0.safetensors").is_file()
