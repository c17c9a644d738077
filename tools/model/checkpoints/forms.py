"""The Hugging Face directory: what TensorRT-LLM's LLM API, transformers and others load as a plain
Qwen2.

    config.json  generation_config.json  model.safetensors      the model; its head has no bias
    vocab.json  merges.txt  tokenizer_config.json               the tokenizer and the speech tokens
                                                                after it; not for phoneme models
    cosyserve/head_bias.safetensors  cosyserve/vocabulary.json  what stock loaders do not support

Source: compatibility specification section 7.1; decision 9 on the bias.
"""

import json
import shutil
from collections.abc import Mapping
from typing import Any

from services.frontend.tokenizers.placeholders import CONTROLS, MARKUP
from services.llm.hosted.extended_vocabulary import (
    HEAD_BIAS_FILE,
    HEAD_BIAS_TENSOR,
    VOCABULARY_FILE,
    ExtendedVocabulary,
)
from tools.model.checkpoints.llm_checkpoint import LlmCheckpoint
from tools.model.checkpoints.tensor_file import Precision, Source, write
from tools.model.output.complete_directory import Assembly

Weights = Mapping[str, Mapping[str, Source]]
"""Tensors of safetensors files, by file."""
_END_OF_TEXT = CONTROLS[0]
_CHAT_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}<|sos|>{{ message['content'] }}<|task_id|>"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] }}{% endif %}{% endfor %}"
)


def weights(checkpoint: LlmCheckpoint) -> Weights:
    """The large files."""
    return {"model.safetensors": checkpoint.tensors}


def write_small_files(checkpoint: LlmCheckpoint, assembly: Assembly, precision: Precision) -> None:
    """All but `weights`."""
    assembly.json("config.json", model_config(checkpoint, precision))
    assembly.json("generation_config.json", generation_config(checkpoint))
    write_tokenizer(checkpoint, assembly)
    write_side_files(checkpoint, assembly)


def write_side_files(checkpoint: LlmCheckpoint, assembly: Assembly) -> None:
    """The head's bias, always float32, and the numbering of the vocabulary."""
    assembly.file(HEAD_BIAS_FILE, lambda path: write(path, {HEAD_BIAS_TENSOR: checkpoint.head_bias}, Precision.FLOAT32))
    assembly.file(VOCABULARY_FILE, checkpoint.vocabulary.save)


def write_tokenizer(checkpoint: LlmCheckpoint, assembly: Assembly) -> None:
    """Nothing for a model that brings no BPE."""
    folder = checkpoint.tokenizer
    if folder is None:
        return
    for name in ("vocab.json", "merges.txt"):
        assembly.file(name, lambda path, name=name: shutil.copyfile(folder / name, path))  # type: ignore[misc]
    words = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    assembly.json("tokenizer_config.json", tokenizer_config(checkpoint.vocabulary, words))


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


def tokenizer_config(vocabulary: ExtendedVocabulary, words: int) -> dict[str, Any]:
    """tokenizer_config.json for a vocabulary of `words` entries with CosyVoice2's marks and then
    the speech tokens behind it.
    """
    marks = [*CONTROLS, *MARKUP]
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
