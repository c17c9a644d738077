"""Invalid settings are refused by name, and slots are as long as a sentence can get."""

from pathlib import Path

import pytest

from cosyserve.errors import InvalidRequest, SettingsError
from cosyserve.settings import load
from services.llm.generation.outbox import Outbox
from services.llm.generation.request import FinishReason, Grouping, Hop, Prompt
from services.llm.generation.requested_script import longest_arriving_text, positions_of_whole_text
from services.llm.settings import LlmSettings
from tests.unit.llm.generation.test_scripts import CONFIG

PREFIX = "COSYSERVE_LLM_"
GOOD = {"LISTEN": "127.0.0.1:0", "MODEL": "models/demo"}


def read(**changes: str) -> LlmSettings:
    return load(LlmSettings, PREFIX, {PREFIX + name: value for name, value in (GOOD | changes).items()})


def test_defaults_need_an_address_and_a_model() -> None:
    assert (read().backend, read().model, read().threads, read().max_sequences) == ("auto", Path("models/demo"), 1, 16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"MODEL": ""}, "model is not set and backend=auto needs it"),
        ({"BACKEND": "onnx"}, "backend is 'onnx', allowed: auto, tensorrt_llm, vllm, torch, fake"),
        ({"DEVICE": "tpu"}, "device is 'tpu', allowed: auto, cpu, cuda"),
        ({"AUTO_FIRST": "tensorrt"}, "auto_first is 'tensorrt', allowed: tensorrt_llm, vllm, or empty"),
        ({"GPU_ENGINE": "paged"}, "gpu_engine is 'paged', allowed: auto, fused, readable"),
        ({"GPU_PRECISION": "float16"}, "gpu_precision is 'float16', allowed: bfloat16, float32"),
        ({"GPU_DECODE": "one"}, "gpu_decode is 'one', allowed: launches, one_launch"),
        ({"GPU_DECODE": "one_launch", "DEVICE": "cpu"}, "gpu_decode=one_launch needs a GPU, device is cpu"),
        ({"GPU_DECODE": "one_launch", "GPU_ENGINE": "readable"}, "is of fused steps, gpu_engine is readable"),
        ({"GPU_DECODE": "one_launch", "GPU_PRECISION": "float32"}, "computes in bfloat16, gpu_precision is float32"),
        ({"GPU_DECODE": "one_launch", "BATCH_INVARIANT": "true"}, "batch_invariant is true"),
        ({"GPU_DECODE": "one_launch", "BACKEND": "vllm"}, "is of our own engine, backend is vllm"),
        ({"MAX_SEQUENCES": "0"}, "max_sequences is 0, must be at least 1"),
        ({"MAX_WAITING": "-1"}, "max_waiting is -1, must not be negative"),
        ({"PROMPT_STATES_MIB": "-1"}, "prompt_states_mib is -1, must not be negative"),
        ({"IDLE_SECONDS": "0"}, "idle_seconds is 0.0, must be greater than 0"),
        ({"THREADS": "0"}, "threads is 0, must be at least 1"),
        ({"MAX_SEQUENCE": "4"}, "COSYSERVE_LLM_MAX_SEQUENCE is not a setting of this service"),
    ],
)
def test_a_bad_setting_is_named(changes: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError, match=message.replace("(", r"\(")):
        read(**changes)


def test_a_slot_is_as_long_as_its_sentence_can_get() -> None:
    prompt = Prompt((1, 2, 3), (4, 5))
    assert positions_of_whole_text(prompt, 10, 217) == 2 + 3 + 2 + 10 + 200
    with pytest.raises(
        InvalidRequest,
        match="10 ids, which with this prompt may need 217 positions; this server reserves at most 216",
    ):
        positions_of_whole_text(prompt, 10, 216)


def test_arriving_text_is_limited_to_what_its_slot_holds() -> None:
    assert longest_arriving_text(CONFIG, Prompt(), 2 + 21 * 50) == 50
    with pytest.raises(InvalidRequest, match="no room for text in the 100 positions"):
        longest_arriving_text(CONFIG, Prompt((), tuple(range(90))), 100)


def sent(tokens: int, last: int | None = None) -> list[Hop]:
    """The hops of so many tokens. last: with which the sentence is known to end."""
    hops: list[Hop] = []
    outbox = Outbox(hops.append, Grouping(first=2, rest=3))
    outbox.prefilled(0, 9)
    for token in range(tokens):
        outbox.add(token, last=token == last)
    outbox.finish(FinishReason.END_OF_SPEECH, tokens)
    return hops


def test_hops_leave_when_full_and_the_rest_with_the_outcome() -> None:
    hops = sent(6)
    assert [hop.tokens for hop in hops] == [[0, 1], [2, 3, 4], [5]]
    assert [[timing.name for timing in hop.timings] for hop in hops] == [
        ["llm.queue", "llm.prefill", "llm.first_hop"],
        [],
        ["llm.decode"],
    ]
    assert [hop.outcome is not None for hop in hops] == [False, False, True]


def test_a_last_token_that_fills_its_hop_travels_with_the_outcome() -> None:
    assert len(sent(2, last=1)) == 1
