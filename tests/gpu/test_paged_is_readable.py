"""The paged engine on a CUDA device against the readable one, with the small reference models.

What the flow rounds is compared in mel, what the vocoder rounds in samples of the same mel. Samples
of the two engines cannot be: f0 is summed up into phase, and with this model's random weights a
millionth in the mel (relative) becomes 6e-4 in a sample, four thousandths another sound (0.5
between logarithms of spectra), on the CPU alone as well.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from cosyserve.model_directory import ModelDirectory
from services.token2wav.decoders.backend import Backend, EngineSettings
from services.token2wav.decoders.continuous import ContinuousDecoder
from services.token2wav.decoders.interface import StepInput, takes_prompt_whole
from services.token2wav.flow.loading import network_files
from services.token2wav.inputs.chunking import Grid
from services.token2wav.inputs.request import Profile, Sentence, Voice
from services.token2wav.loading import load_backend
from services.token2wav.vocoder.loading import load_vocoder
from services.token2wav.vocoder.time_stretch import MelStretch
from tests.gpu.compiling import SMALL_POOL
from tests.stacks.up_process import DEMO, STEP_AUDIO2, TINY, TINY3

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or find_spec("triton") is None, reason="no CUDA device or no triton"
    ),
    pytest.mark.usefixtures("kernels"),
]
CASES = [(40, 60, 1.0), (0, 77, 1.0), (30, 101, 0.8), (26, 5, 1.0)]
"""Prompt and generated tokens, speed."""
FLOAT32_MEL = 2e-6
"""Relative error, root mean square: sums of some hundred float32 in another order, through ten
Euler steps. Seen on an H200: 4e-7.
"""
BFLOAT16_MEL = 1e-2
"""Seen: 4.2e-3 to 4.7e-3. The readable flow on a CPU, with the operands of its products rounded to
bfloat16, is off by 4.2e-3 to 5.4e-3.
"""
SAMPLES = {
    ("float32", "readable"): 2e-6,
    ("float32", "windowed"): 5e-6,
    ("bfloat16", "readable"): 2e-6,
    ("bfloat16", "windowed"): 2e-2,
}
"""Relative error, root mean square, against the readable vocoder over the whole of the same mel.
Seen in float32: 0, 5e-7, and of CosyVoice3 2e-6. With bfloat16 the windowed filter takes operands
of 11 bits; seen with the published sizes: 3e-3.
"""


@dataclass(frozen=True)
class Spoken:
    """mel: float32 [T, 80] behind the prompt, before the stretch, on the CPU. samples: float32
    [n].
    """

    mel: Tensor
    samples: Tensor


def load(model: Path = TINY, **settings: Any) -> Backend:
    """What a GPU gets unless asked otherwise, with little memory, changed by `settings`. model: of
    flow and vocoder.
    """
    if model == STEP_AUDIO2:
        model, settings = TINY, settings | {"decoder_model": model}
    return load_backend("torch", replace(EngineSettings(model=model, device="cuda", **SMALL_POOL), **settings))


def voice(model: Path, prompt: int, key: str = "") -> Voice:
    with np.load((TINY if model == STEP_AUDIO2 else model) / "flow_mel.npz") as arrays:
        mel = np.resize(arrays["prompt_feat"][0], (2 * prompt, 80)).astype(np.float32)
        return Voice(np.arange(prompt) * 11 % 6561, mel, arrays["spk_embedding"][0].astype(np.float32), key)


def listen(decoder: Any, monkeypatch: pytest.MonkeyPatch) -> dict[int, list[Tensor]]:
    """What the flow hands to the vocoder from now on, [n, 80] each, by the stream's state."""
    heard: dict[int, list[Tensor]] = {}
    if isinstance(decoder, ContinuousDecoder):
        sound = decoder._samples

        def readable(step_inputs: Any, fresh: Any) -> Any:
            for step_input, mel in zip(step_inputs, fresh, strict=True):
                heard.setdefault(id(step_input.state), []).append(mel.T.cpu())
            return sound(step_inputs, fresh)

        monkeypatch.setattr(decoder, "_samples", readable)
        return heard
    make = decoder._vocoder_step.make

    def paged(turns: Any) -> None:
        for turn in turns:
            heard.setdefault(id(turn.state), []).extend(mel.cpu() for mel in turn.mels)
        make(turns)

    monkeypatch.setattr(decoder._vocoder_step, "make", paged)
    return heard


def speak(backend: Backend, cases: Sequence[int], key: str = "", model: Path = TINY) -> list[Spoken]:
    """The cases together, a block of each in a step."""
    decoder = backend.decoders[Profile.CONTINUOUS]
    sentences = [
        Sentence(voice(model, CASES[at][0], key), seed=1 << 40 | at, sentence_index=at, speed=CASES[at][2])
        for at in cases
    ]
    states = [decoder.start(sentence) for sentence in sentences]
    tokens = [np.random.default_rng(at).integers(0, 6561, CASES[at][1]) for at in cases]
    made: list[list[np.ndarray]] = [[] for _ in cases]
    todo = list(range(len(cases)))
    with pytest.MonkeyPatch.context() as monkeypatch:
        heard = listen(decoder, monkeypatch)
        while todo:
            ends = [len(states[at].prompt) + len(tokens[at]) for at in todo]
            grids = [Grid(len(states[at].prompt), takes_prompt_whole(decoder)) for at in todo]
            untils = [
                grid.next_border(states[at].position, end) for at, grid, end in zip(todo, grids, ends, strict=True)
            ]
            step_inputs = [
                StepInput(states[at], tokens[at], until, until == end)
                for at, until, end in zip(todo, untils, ends, strict=True)
            ]
            for at, step_input, result in zip(list(todo), step_inputs, decoder.step(step_inputs), strict=True):
                made[at].append(result.samples)
                if step_input.final:
                    todo.remove(at)
    return [
        Spoken(torch.cat(heard[id(state)]), torch.from_numpy(np.concatenate(pieces)))
        for state, pieces in zip(states, made, strict=True)
    ]


def error(found: Tensor, wanted: Tensor) -> float:
    """Root mean square, relative."""
    assert found.shape == wanted.shape
    return float((found - wanted).norm() / wanted.norm())


@cache
def readable(model: Path) -> list[Spoken]:
    return speak(load(model=model, gpu_engine="readable"), range(len(CASES)), model=model)


def one_page(model: Path, precision: str, kept: str = "operands") -> int:
    """Bytes of a page of the model's flow."""
    from services.token2wav.gpu.paged_flow.kept_numbers import KEPT_NUMBERS
    from services.token2wav.gpu.paged_flow.networks import paged_network

    directory, operands = ModelDirectory(model), getattr(torch, precision)
    ratio = KEPT_NUMBERS[kept].ratio(operands)
    elements = paged_network(directory).layout(network_files(directory).config(directory), True, ratio).elements
    return int(elements * operands.itemsize)


@dataclass(frozen=True)
class Served:
    """A backend with pages, and what it serves."""

    backend: Backend
    model: Path
    precision: str
    vocoder: str
    kept: str

    def speak(self, cases: Sequence[int], key: str = "") -> list[Spoken]:
        return speak(self.backend, cases, key, self.model)


MODELS = (TINY, TINY3, STEP_AUDIO2)
SERVED = [(model, *pair, "operands") for model in MODELS for pair in SAMPLES]
SERVED += [(model, "bfloat16", "readable", kept) for model in MODELS for kept in ("int8", "float8")]


@pytest.fixture(scope="module", params=SERVED, ids=lambda one: " ".join((one[0].name, *one[1:])))
def paged(request: pytest.FixtureRequest) -> Served:
    model, precision, vocoder, kept = request.param
    backend = load(
        model=model, gpu_engine="paged", gpu_precision=precision, gpu_vocoder=vocoder, gpu_kv_precision=kept
    )  # fmt: skip
    return Served(backend, model, precision, vocoder, kept)


def test_the_mel_is_the_readable_flows_alone_together_and_with_a_kept_prompt(paged: Served) -> None:
    wanted = readable(paged.model)
    together, alone = paged.speak(range(len(CASES))), [paged.speak([at])[0] for at in range(len(CASES))]
    kept = [paged.speak([0], "kept")[0] for _ in range(2)]
    pairs = [
        *zip(together, wanted, strict=True),
        *zip(alone, wanted, strict=True),
        *((each, wanted[0]) for each in kept),
    ]
    errors = [error(found.mel, right.mel) for found, right in pairs]
    served = f"{paged.model.name}, {paged.precision}, keys and values {paged.kept}, {paged.vocoder}"
    print(f"{served}: mel", *(f"{each:.1e}" for each in errors))
    assert max(errors) < (FLOAT32_MEL if paged.precision == "float32" else BFLOAT16_MEL)


def test_samples_are_the_readable_vocoders_of_the_same_mel(paged: Served) -> None:
    whole, errors = load_vocoder(ModelDirectory(paged.model), torch.device("cuda")), []
    for at, spoken in enumerate(paged.speak(range(len(CASES)))):
        mel = MelStretch(CASES[at][2], torch.device("cuda")).step(spoken.mel.T.contiguous().cuda(), final=True)
        errors.append(error(spoken.samples, whole.offline(mel, 1 << 40 | at, at).cpu()))
    print(f"{paged.model.name}, {paged.precision}, {paged.vocoder}: samples", *(f"{each:.1e}" for each in errors))
    assert max(errors) < SAMPLES[paged.precision, paged.vocoder]


@pytest.mark.parametrize("model", MODELS, ids=["tiny", "tiny3", "tiny-stepaudio2"])
@pytest.mark.parametrize(
    ("precision", "kept"), [("float32", "operands"), ("bfloat16", "operands"), ("bfloat16", "int8")]
)
def test_without_room_sentences_are_made_again_and_sound_the_same(model: Path, precision: str, kept: str) -> None:
    one = one_page(model, precision, kept)
    backend = load(
        model=model, gpu_precision=precision, gpu_kv_precision=kept, gpu_vocoder="windowed", gpu_engine="paged",
        state_bytes=4 * one, prompt_cache_bytes=one,
    )  # fmt: skip
    found = speak(backend, range(len(CASES)), model=model)
    errors = [error(each.mel, wanted.mel) for each, wanted in zip(found, readable(model), strict=True)]
    decoder: Any = backend.decoders[Profile.CONTINUOUS]
    print(
        f"{model.name}, {precision}, {decoder.recomputed} blocks made again: mel", *(f"{each:.1e}" for each in errors)
    )
    assert max(errors) < (FLOAT32_MEL if precision == "float32" else BFLOAT16_MEL)
    assert decoder.recomputed > 0


def test_a_sentence_longer_than_a_batch_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "CASES", [(30, 900, 1.0)])
    one = one_page(TINY, "float32")
    backend = load(gpu_precision="float32", gpu_engine="paged", state_bytes=4 * one, prompt_cache_bytes=one)
    (found,), (wanted,) = speak(backend, [0]), speak(load(gpu_engine="readable"), [0])
    decoder: Any = backend.decoders[Profile.CONTINUOUS]
    assert decoder.recomputed > 32
    assert error(found.mel, wanted.mel) < FLOAT32_MEL


def test_the_bundled_voice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights that speak, and layers whose widths are no powers of two."""
    parts = torch.load(DEMO / "spk2info.pt", weights_only=True)["af_heart"]
    names = ("flow_prompt_speech_token", "prompt_speech_feat", "flow_embedding")
    ids, mel, embedding = (parts[name][0].numpy() for name in names)
    sentence = Sentence(Voice(ids.astype(np.int64), mel.astype(np.float32), embedding.astype(np.float32)), seed=7)
    made = []
    for engine in ("auto", "readable"):
        backend = load(model=DEMO, gpu_engine=engine)
        assert ("paged" in backend.identity.precision) == (engine == "auto")
        decoder = backend.decoders[Profile.CONTINUOUS]
        state, heard, samples = decoder.start(sentence), listen(decoder, monkeypatch), []
        tokens = np.resize(ids[20:50], 90).astype(np.int64)
        while state.position < len(ids) + len(tokens):
            until = min(state.position // 25 * 25 + 25, len(ids) + len(tokens))
            (result,) = decoder.step([StepInput(state, tokens, until, until == len(ids) + len(tokens))])
            samples.append(torch.from_numpy(result.samples))
        made.append(Spoken(torch.cat(heard[id(state)]), torch.cat(samples)))
    paged, readable = made
    vocoder = load_vocoder(ModelDirectory(DEMO), torch.device("cuda"))
    again = vocoder.offline(paged.mel.T.contiguous().cuda(), 7, 0).cpu()
    print(
        f"bundled voice: mel {error(paged.mel, readable.mel):.1e}, samples of the same mel "
        f"{error(paged.samples, again):.1e}"
    )
    assert error(paged.mel, readable.mel) < BFLOAT16_MEL
    assert error(paged.samples, again) < SAMPLES["bfloat16", "windowed"]


def test_what_serves_unless_asked_otherwise_is_named() -> None:
    paged, readable = load().identity, load(gpu_engine="readable").identity
    assert paged.model_hash == readable.model_hash
    assert paged.precision == (
        "bfloat16, paged, windowed vocoder of float16, batches of up to 32 streams, first hop of 20 tokens"
    )
    assert paged.device.startswith(f"{readable.device}, triton ")
