"""The forms in which other engines load the speech-token model.

The Hugging Face directory is what TensorRT-LLM's LLM API, transformers and others load as a plain
Qwen2 (compatibility specification section 7.1; decision 9 on the bias):

    config.json  generation_config.json  model.safetensors      the model; its head has no bias
    vocab.json  merges.txt  tokenizer_config.json               the tokenizer and the speech tokens
                                                                after it; not for phoneme models
    cosyserve/head_bias.safetensors  cosyserve/vocabulary.json  what stock loaders do not support

The TensorRT-LLM checkpoint, from which `trtllm-build` makes an engine, has `config.json` and
`rank0.safetensors` in their place. It is written without TensorRT-LLM. One format serves 0.20 and
1.0 to 1.2: both construct the same configuration class from these keys, and refuse keys of
`mapping`, `quantization` and `moe` that they do not know, so only those are given that both know
(section 7.3).

The vLLM export is the model as a speaker of the ids of its head, whose prompts come as embeddings:

    config.json  model.safetensors             embed_tokens and lm_head hold the speech tokens only;
                                               the head has its bias, if any
    cosyserve/prompt_embeddings.safetensors    text [text_ids, hidden], marks [2, hidden]: tables
                                               in which the prompt is looked up; no marks where the
                                               speech tokens hold them
    cosyserve/vocabulary.json

With a bias its architecture's name is none of vLLM's own: `services.llm.hosted.vllm.vllm_plugin`
registers a Qwen2 with a biased head under it (section 7.6).
"""

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from services.llm.hosted.extended_vocabulary import (
    HEAD_BIAS_FILE,
    HEAD_BIAS_TENSOR,
    MARKS,
    PROMPT_EMBEDDINGS_FILE,
    TEXT,
    VOCABULARY_FILE,
    WEIGHTS_FILE,
)
from services.llm.hosted.vllm.vllm_plugin import ARCHITECTURE
from tools.model.checkpoints.llm_checkpoint import EMBEDDING, HEAD, HEAD_BIAS, NORM, LlmCheckpoint
from tools.model.checkpoints.tensor_file import Precision, Source, write
from tools.model.output.complete_directory import Assembly

Weights = Mapping[str, Mapping[str, Source]]
"""Tensors of safetensors files, by file."""
_END_OF_TEXT = "<|endoftext|>"
_CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}<|sos|>{{ message['content'] }}<|task_id|>"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] }}{% endif %}{% endfor %}"
)
_TENSORRT_LLM_NAMES = {
    "input_layernorm.weight": ["input_layernorm.weight"],
    "attention.qkv.weight": [f"self_attn.{part}_proj.weight" for part in "qkv"],
    "attention.qkv.bias": [f"self_attn.{part}_proj.bias" for part in "qkv"],
    "attention.dense.weight": ["self_attn.o_proj.weight"],
    "post_layernorm.weight": ["post_attention_layernorm.weight"],
    "mlp.fc.weight": ["mlp.gate_proj.weight"],
    "mlp.gate.weight": ["mlp.up_proj.weight"],
    "mlp.proj.weight": ["mlp.down_proj.weight"],
}
"""TensorRT-LLM's name of a layer's tensor, and Hugging Face's names of what is stacked in it. `fc`
is the branch that is activated, which is the gate.
"""


@dataclass(frozen=True)
class Form:
    """weights: the large files. write_small_files: writes all others."""

    weights: Callable[[LlmCheckpoint], Weights]
    write_small_files: Callable[[LlmCheckpoint, Assembly, Precision], None]


def _write_hugging_face(checkpoint: LlmCheckpoint, assembly: Assembly, precision: Precision) -> None:
    assembly.json("config.json", model_config(checkpoint, precision))
    assembly.json("generation_config.json", generation_config(checkpoint))
    _write_tokenizer_and_side_files(checkpoint, assembly)


def _write_tensorrt_llm(checkpoint: LlmCheckpoint, assembly: Assembly, precision: Precision) -> None:
    assembly.json("config.json", tensorrt_llm_config(checkpoint, precision), indent=4)
    _write_tokenizer_and_side_files(checkpoint, assembly)


def _write_vllm(checkpoint: LlmCheckpoint, assembly: Assembly, precision: Precision) -> None:
    config = model_config(checkpoint, precision)
    del config["eos_token_id"]  # stop ids are the server's to give with each request
    config["vocab_size"] = checkpoint.vocabulary.speech.rows
    if checkpoint.vocabulary.speech.head_bias:
        config |= {"architectures": [ARCHITECTURE], "use_bias": True}
    assembly.json("config.json", config)
    assembly.file(VOCABULARY_FILE, checkpoint.vocabulary.save)


def _write_tokenizer_and_side_files(checkpoint: LlmCheckpoint, assembly: Assembly) -> None:
    """The tokenizer of a model that has a BPE, the head's bias, always float32, and the numbering
    of the vocabulary.
    """
    folder = checkpoint.tokenizer
    if folder is not None:
        for name in ("vocab.json", "merges.txt"):
            assembly.file(name, partial(shutil.copyfile, folder / name))
        words = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
        assembly.json("tokenizer_config.json", tokenizer_config(checkpoint, words))
    bias = {HEAD_BIAS_TENSOR: checkpoint.head_bias}
    assembly.file(HEAD_BIAS_FILE, partial(write, tensors=bias, precision=Precision.FLOAT32))
    assembly.file(VOCABULARY_FILE, checkpoint.vocabulary.save)


def _hugging_face_weights(checkpoint: LlmCheckpoint) -> Weights:
    return {WEIGHTS_FILE: checkpoint.tensors}


def tensorrt_llm_weights(checkpoint: LlmCheckpoint) -> Weights:
    """Tensors by TensorRT-LLM's names."""
    given = checkpoint.tensors
    named = {"transformer.vocab_embedding.weight": given[EMBEDDING]}
    for index in range(checkpoint.config.layers):
        for theirs, ours in _TENSORRT_LLM_NAMES.items():
            parts = (given[f"model.layers.{index}.{name}"] for name in ours)
            named[f"transformer.layers.{index}.{theirs}"] = Source.stacked(parts)
    return {"rank0.safetensors": named | {"transformer.ln_f.weight": given[NORM], "lm_head.weight": given[HEAD]}}


def _vllm_weights(checkpoint: LlmCheckpoint) -> Weights:
    vocabulary = checkpoint.vocabulary
    first, last = vocabulary.text_ids, vocabulary.behind_speech
    embedding = checkpoint.tensors[EMBEDDING]
    speech = {EMBEDDING: embedding.rows(first, last), HEAD: checkpoint.tensors[HEAD].rows(first, last)}
    if vocabulary.speech.head_bias:
        speech[HEAD_BIAS] = checkpoint.head_bias.rows(first, last)
    prompt = {TEXT: embedding.rows(0, first)}
    if vocabulary.marks:
        prompt[MARKS] = embedding.rows(last, last + vocabulary.marks)
    return {PROMPT_EMBEDDINGS_FILE: prompt, WEIGHTS_FILE: {**checkpoint.tensors, **speech}}


def model_config(checkpoint: LlmCheckpoint, precision: Precision) -> dict[str, Any]:
    """config.json of a `Qwen2ForCausalLM`."""
    sizes, vocabulary = checkpoint.config, checkpoint.vocabulary
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "torch_dtype": precision.value,
        "vocab_size": vocabulary.rows,
        "hidden_size": sizes.hidden_size,
        "intermediate_size": sizes.intermediate_size,
        "num_hidden_layers": sizes.layers,
        "num_attention_heads": sizes.heads,
        "num_key_value_heads": sizes.kv_heads,
        "head_dim": sizes.head_size,
        "hidden_act": "silu",
        "rms_norm_eps": sizes.rms_norm_eps,
        "rope_theta": sizes.rope_theta,
        "rope_scaling": None,
        "max_position_embeddings": checkpoint.positions,
        "max_window_layers": sizes.layers,
        "use_sliding_window": False,
        "sliding_window": None,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "tie_word_embeddings": False,
        "use_cache": True,
        "eos_token_id": vocabulary.end,
    }


def generation_config(checkpoint: LlmCheckpoint) -> dict[str, Any]:
    """generation_config.json: the stop ids, and the sampling of the model directory without its
    repetition rule.
    """
    return {
        "eos_token_id": list(checkpoint.vocabulary.stops),
        "do_sample": True,
        "temperature": 1.0,
        "top_p": checkpoint.config.sampling.top_p,
        "top_k": checkpoint.config.sampling.top_k,
    }


def tokenizer_config(checkpoint: LlmCheckpoint, words: int) -> dict[str, Any]:
    """tokenizer_config.json for a vocabulary of `words` entries, the marks of the generation and
    then the speech tokens behind it.
    """
    vocabulary, marks = checkpoint.vocabulary, [_END_OF_TEXT, *checkpoint.generation.text_marks]
    added = {index: (token, True) for index, token in enumerate(marks, start=words)}
    added |= {index: (token, False) for index, token in enumerate(vocabulary.added_tokens, start=vocabulary.text_ids)}
    return {
        "tokenizer_class": "Qwen2Tokenizer",
        "added_tokens_decoder": {
            str(index): {
                "content": token, "special": special, "normalized": False, "lstrip": False, "rstrip": False,
                "single_word": False
            }
            for index, (token, special) in added.items()
        },
        "additional_special_tokens": marks[1:],
        "bos_token": None,
        "eos_token": _END_OF_TEXT,
        "pad_token": _END_OF_TEXT,
        "unk_token": None,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "errors": "replace",
        "model_max_length": 32768,
        "split_special_tokens": False,
        "chat_template": _CHAT_TEMPLATE,
    }  # fmt: skip


def tensorrt_llm_config(checkpoint: LlmCheckpoint, precision: Precision) -> dict[str, Any]:
    """config.json of a TensorRT-LLM checkpoint, for one GPU."""
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


TARGETS = {
    "hf": Form(_hugging_face_weights, _write_hugging_face),
    "trtllm-1.x": Form(tensorrt_llm_weights, _write_tensorrt_llm),
    "trtllm-0.20": Form(tensorrt_llm_weights, _write_tensorrt_llm),
    "vllm": Form(_vllm_weights, _write_vllm),
}
"""By target of `cosyserve model convert`."""
