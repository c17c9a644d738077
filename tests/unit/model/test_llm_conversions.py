"""The converted forms of the speech-token model say what the reference said."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.numpy import load_file

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from services.llm.hosted.extended_vocabulary import HEAD_BIAS_FILE, MASKED, VOCABULARY_FILE, ExtendedVocabulary
from tests.unit.model.steps import DEMO, TINY, as_published
from tools.model.checkpoints.forms import TARGETS, tensorrt_llm_config, tensorrt_llm_weights
from tools.model.checkpoints.hugging_face_reader import open_checkpoint
from tools.model.checkpoints.llm_checkpoint import expected_shapes
from tools.model.checkpoints.tensor_file import Precision, Source, zeros
from tools.model.comparison.converted_model import read_conversion
from tools.model.convert import convert
from tools.model.verify_llm import questions

TOLERANCE = {Precision.FLOAT32: 1e-4, Precision.BFLOAT16: 0.15, Precision.FLOAT16: 0.025}
"""Largest error of a log-probability. Float32: compatibility specification section 9. The others:
what rounding the weights did to this model when it was measured (0.10 and 0.016), and room."""
TRTLLM = ("trtllm-1.x", "trtllm-0.20")


@pytest.fixture(scope="module")
def golden() -> dict[str, NDArray[np.float32]]:
    with np.load(TINY / "llm.npz") as stored:
        return {name: stored[name] for name in stored.files}


@pytest.fixture(scope="module")
def conversion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every target in float32, by name."""
    folder = tmp_path_factory.mktemp("converted")
    for target in TARGETS:
        convert(TINY, target, Precision.FLOAT32, folder / target)
    return folder


@pytest.mark.parametrize(
    ("target", "precision"),
    [
        *((target, Precision.FLOAT32) for target in TARGETS),
        ("trtllm-1.x", Precision.BFLOAT16),
        ("trtllm-1.x", Precision.FLOAT16),
    ],
)
def test_a_conversion_gives_the_reference_scores(
    conversion: Path, tmp_path: Path, golden: dict[str, NDArray[np.float32]], target: str, precision: Precision
) -> None:
    """`tools.model.comparison.converted_model` shares no code with what writes the forms.
    `test_verify_llm` shows that it notices what can go wrong."""
    directory = conversion / target
    if precision is not Precision.FLOAT32:
        directory = tmp_path / "made"
        convert(TINY, target, precision, directory)
    converted = read_conversion(directory, f"llm-{target}")
    _, question = next(questions(TINY, ExtendedVocabulary.load(directory / VOCABULARY_FILE)))
    with torch.inference_mode():
        scores = converted.log_probabilities(converted.hidden(question)[-1][question.before - 1 :]).numpy()
    speech = slice(converted.first, converted.first + COSYVOICE2.speech.rows)
    error = np.abs(scores[:, speech] - golden["logprobs_forced"]).max()
    assert error < TOLERANCE[precision]
    assert precision is Precision.FLOAT32 or error > TOLERANCE[Precision.FLOAT32], "the weights are rounded"
    others = np.delete(scores, np.r_[speech], axis=1)
    assert others.max(initial=-np.inf) < MASKED / 2, "a row that is no speech token can be drawn"


def test_the_vllm_export_is_a_model_of_speech_tokens_alone(conversion: Path) -> None:
    config = json.loads((conversion / "vllm" / "config.json").read_text())
    assert (config["architectures"], config["vocab_size"], config["tie_word_embeddings"]) == (
        ["CosyVoice2ForCausalLM"],
        COSYVOICE2.speech.rows,
        False,
    )
    assert not {"eos_token_id", "bos_token_id"} & config.keys()
    assert [path.name for path in (conversion / "vllm").glob("*.safetensors")] == ["model.safetensors"], (
        "a loader takes every file for weights"
    )


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("target", TRTLLM)
def test_names_shapes_and_config_are_those_of_the_format(conversion: Path, target: str) -> None:
    config = json.loads((conversion / target / "config.json").read_text())
    shapes = {name: list(tensor.shape) for name, tensor in load_file(conversion / target / "rank0.safetensors").items()}
    rows, hidden, mlp, heads, kv_heads, size = 6912, 64, 128, 4, 2, 16
    expected = {
        "transformer.vocab_embedding.weight": [rows, hidden],
        "transformer.ln_f.weight": [hidden],
        "lm_head.weight": [rows, hidden],
    }
    for layer in range(2):
        at = f"transformer.layers.{layer}"
        expected |= {
            f"{at}.input_layernorm.weight": [hidden],
            f"{at}.attention.qkv.weight": [(heads + 2 * kv_heads) * size, hidden],
            f"{at}.attention.qkv.bias": [(heads + 2 * kv_heads) * size],
            f"{at}.attention.dense.weight": [hidden, heads * size],
            f"{at}.post_layernorm.weight": [hidden],
            f"{at}.mlp.fc.weight": [mlp, hidden],
            f"{at}.mlp.gate.weight": [mlp, hidden],
            f"{at}.mlp.proj.weight": [hidden, mlp],
        }
    assert shapes == expected
    described = {
        "architecture": "Qwen2ForCausalLM", "qwen_type": "qwen2", "position_embedding_type": "rope_gpt_neox",
        "logits_dtype": "float32", "rotary_base": 1e6, "vocab_size": rows, "head_size": size,
        "rotary_embedding_dim": size, "attn_bias": True,
    }  # fmt: skip
    assert described.items() <= config.items()
    assert "rank" not in config["mapping"]


def test_the_published_sizes_get_the_published_config(conversion: Path) -> None:
    """Every field of the format's description, and those that both versions of the library ask for
    in addition.
    """
    small, vocabulary = open_checkpoint(conversion / "hf"), ExtendedVocabulary(151_663, COSYVOICE2.speech)
    sizes = replace(
        small.config,
        hidden_size=896,
        intermediate_size=4864,
        layers=24,
        heads=14,
        kv_heads=2,
        head_size=64,
        rope_theta=1e6,
        rms_norm_eps=1e-6,
    )
    checkpoint = replace(small, config=sizes, positions=32768, vocabulary=vocabulary)
    config = tensorrt_llm_config(checkpoint, Precision.BFLOAT16)
    described = {
        "architecture": "Qwen2ForCausalLM", "dtype": "bfloat16", "logits_dtype": "float32", "vocab_size": 158336,
        "hidden_size": 896,
        "num_hidden_layers": 24, "num_attention_heads": 14, "num_key_value_heads": 2, "intermediate_size": 4864,
        "hidden_act": "silu",
        "norm_epsilon": 1e-6, "use_parallel_embedding": False, "embedding_sharding_dim": 0,
        "position_embedding_type": "rope_gpt_neox",
        "max_position_embeddings": 32768, "rotary_base": 1_000_000.0, "rotary_scaling": None,
        "rotary_embedding_dim": 64, "head_size": 64,
        "qk_layernorm": False, "attn_bias": True, "mlp_bias": False, "qwen_type": "qwen2", "seq_length": 8192,
        "tie_word_embeddings": False,
        "mapping": {
            "world_size": 1, "tp_size": 1, "pp_size": 1, "cp_size": 1, "moe_tp_size": 1, "moe_ep_size": 1,
            "gpus_per_node": 8
        },
        "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
    }  # fmt: skip
    additions = {
        "disable_weight_only_quant_plugin": False, "use_logn_attn": False, "num_labels": 1, "moe_intermediate_size": 0,
        "moe_shared_expert_intermediate_size": 0, "runtime_defaults": None,
        "moe": {"num_experts": 0, "top_k": 0, "normalization_mode": 0},
    }  # fmt: skip
    assert config == described | additions
    tensors = {name: Source(zeros(*shape)) for name, shape in expected_shapes(sizes, vocabulary).items()}
    shapes = {
        name: list(source.shape)
        for name, source in tensorrt_llm_weights(replace(checkpoint, tensors=tensors))["rank0.safetensors"].items()
    }
    assert len(shapes) == 3 + 24 * 8
    assert shapes["transformer.layers.23.attention.qkv.weight"] == [1152, 896]
    assert (
        shapes["transformer.layers.23.mlp.fc.weight"] == shapes["transformer.layers.0.mlp.gate.weight"] == [4864, 896]
    )
    assert shapes["lm_head.weight"] == shapes["transformer.vocab_embedding.weight"] == [158336, 896]
    for target in TRTLLM:
        assert {"config.json", "rank0.safetensors", HEAD_BIAS_FILE, VOCABULARY_FILE} <= files_below(conversion / target)


def test_a_hugging_face_directory_converts_to_the_same_checkpoint(conversion: Path, tmp_path: Path) -> None:
    for target, weights in (("trtllm-1.x", "rank0.safetensors"), ("vllm", "model.safetensors")):
        convert(conversion / "hf", target, Precision.FLOAT32, tmp_path / target)
        assert files_below(tmp_path / target) == files_below(conversion / target)
        assert (tmp_path / target / weights).read_bytes() == (conversion / target / weights).read_bytes()


def test_a_published_conversion_with_its_bias_in_the_weights_is_read(conversion: Path, tmp_path: Path) -> None:
    convert(as_published(conversion / "hf", tmp_path / "published"), "trtllm-1.x", Precision.FLOAT32, tmp_path / "made")
    for name in ("rank0.safetensors", "config.json", HEAD_BIAS_FILE, VOCABULARY_FILE):
        assert (tmp_path / "made" / name).read_bytes() == (conversion / "trtllm-1.x" / name).read_bytes(), name


def test_a_directory_whose_bias_was_dropped_is_refused(conversion: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(conversion / "hf", tmp_path / "hf", ignore=shutil.ignore_patterns("cosyserve")))
    with pytest.raises(ModelError, match=r"holds no lm_head\.bias: some loader dropped it"):
        open_checkpoint(source)
    (source / "cosyserve").mkdir()
    shutil.copy(conversion / "hf" / VOCABULARY_FILE, source / VOCABULARY_FILE)
    with pytest.raises(ModelError, match=r"head_bias\.safetensors: missing"):
        open_checkpoint(source)


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("config.json", {"architectures": ["LlamaForCausalLM"]}, r"architectures is \['LlamaForCausalLM'\]"),
        ("config.json", {"tie_word_embeddings": True}, "a tied head"),
        ("config.json", {"num_hidden_layers": 3}, r"missing tensor model\.layers\.2\.input_layernorm\.weight"),
        ("config.json", {"num_key_value_heads": 4}, r"k_proj\.weight has shape \[32, 64\], expected \[64, 64\]"),
        ("config.json", {"rope_theta": None}, "no Qwen2 configuration"),
        ("generation_config.json", {"top_k": "many"}, "top_p or top_k is no number"),
    ],
)
def test_a_directory_that_is_something_else_is_refused(
    conversion: Path, tmp_path: Path, file: str, change: dict[str, object], said: str
) -> None:
    source = Path(shutil.copytree(conversion / "hf", tmp_path / "hf"))
    (source / file).write_text(json.dumps(json.loads((source / file).read_text()) | change))
    with pytest.raises(ModelError, match=said):
        open_checkpoint(source)


def test_a_phoneme_model_converts_without_a_tokenizer(tmp_path: Path) -> None:
    convert(DEMO, "hf", Precision.BFLOAT16, tmp_path / "demo")
    assert not (tmp_path / "demo" / "tokenizer_config.json").exists()
    checkpoint = open_checkpoint(tmp_path / "demo")
    assert (checkpoint.vocabulary.text_ids, checkpoint.tokenizer) == (80, None)
    assert tensorrt_llm_config(checkpoint, Precision.BFLOAT16)["dtype"] == "bfloat16"


def test_transformers_loads_the_tokenizer(conversion: Path) -> None:
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(conversion / "hf", local_files_only=True)
    for case in json.loads((TINY / "text_frontend.json").read_text())["tokenizer"]["encode"]:
        assert tokenizer(case["text"])["input_ids"] == case["ids"], case["text"]
    assert len(tokenizer) == 276 + 6566
    assert tokenizer.convert_tokens_to_ids(["<|s_0|>", "<|s_6560|>", "<|eos1|>", "<|sos|>", "<|task_id|>"]) == [
        276,
        6836,
        6837,
        6840,
        6841,
    ]
    chat = tokenizer.apply_chat_template(
        [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "<|s_7|>"}], tokenize=False
    )
    generation = json.loads((conversion / "hf" / "generation_config.json").read_text())
    assert set(generation["eos_token_id"]) == {276 + 6561, 276 + 6562, 276 + 6563}
    assert chat == "<|sos|>hello<|task_id|><|s_7|>"
    assert tokenizer(chat)["input_ids"] == [6840, 104, 101, 108, 108, 111, 6841, 283]
