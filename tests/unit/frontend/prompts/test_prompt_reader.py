"""A voice from a recording: its contents, which recordings and networks are refused, and the errors
and scaling of the features (other tests compare their values with the reference).
"""

import math
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper
from torch import Tensor

from cosyserve.errors import InternalFault, InvalidRequest, ModelError
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.model_directory import ModelDirectory
from services.frontend.prompts import onnx_network
from services.frontend.prompts.features.fbank import kaldi_fbank, speaker_features
from services.frontend.prompts.features.mel import mel_spectrogram
from services.frontend.prompts.features.resample import resample
from services.frontend.prompts.features.whisper_mel import whisper_log_mel
from services.frontend.prompts.prompt_reader import SPEAKER_ENCODER, PromptReader
from services.frontend.voices.voice import Voice
from tests.stacks.up_process import DEMO, ROOT

GOLDEN = ROOT / "tests" / "golden" / "tiny" / "features.npz"
RATE = 24_000
SPEECH_TOKENIZER = COSYVOICE2.speech_tokenizer


@pytest.fixture(scope="module")
def reader() -> PromptReader:
    return PromptReader(ModelDirectory(DEMO))


def sound(seconds: float, rate: int = RATE) -> Tensor:
    """A hundred harmonics of a falling voice in syllables, peak at about 0.3."""
    time = torch.arange(round(seconds * rate), dtype=torch.float64) / rate
    phase = 2 * torch.pi * (140 * time - 6 * time.square())
    buzz = sum(torch.sin(number * phase) / number for number in range(1, 50))
    return (0.15 * buzz * (0.55 + 0.45 * torch.sin(2 * torch.pi * 3 * time))).float()


def vector(voice: Voice) -> Tensor:
    return torch.from_numpy(np.frombuffer(voice.speaker_embedding, "<f4").copy())


def test_the_mel_is_the_recorded_one(reader: PromptReader) -> None:
    with np.load(GOLDEN) as arrays:
        wave, mel = torch.from_numpy(arrays["wav24k"][0]), arrays["mel24k"][0]
    voice = reader.read("me", wave, RATE, [3, 1, 4])
    assert (voice.id, voice.prompt_text_ids, len(voice.prompt_speech_tokens)) == ("me", (3, 1, 4), 25)
    np.testing.assert_allclose(np.frombuffer(voice.prompt_mel, "<f4").reshape(50, 80), mel.T, atol=1e-4)


@pytest.mark.parametrize("samples", [24_000, 24_481, 25_439, 71_999])
def test_two_mel_frames_a_token(reader: PromptReader, samples: int) -> None:
    wave = sound(samples / RATE)
    voice = reader.read("me", wave, RATE, [])
    tokens = len(voice.prompt_speech_tokens)
    assert samples // 960 <= tokens <= samples / 960 + 1
    mel = np.frombuffer(voice.prompt_mel, "<f4").reshape(-1, 80)
    assert len(mel) == 2 * tokens
    np.testing.assert_array_equal(mel, mel_spectrogram(wave[None])[0].T[: 2 * tokens])


def test_a_recording_always_becomes_the_same_voice(reader: PromptReader) -> None:
    wave = sound(1.7)
    again = PromptReader(ModelDirectory(DEMO), threads=2)
    first = reader.read("me", wave, RATE, [5])
    reader.read("other", sound(2.9), RATE, [6])
    assert first == reader.read("me", wave, RATE, [5])
    assert first.prompt_speech_tokens == again.read("me", wave, RATE, [5]).prompt_speech_tokens


@pytest.mark.parametrize("rate", [16_000, 22_050, 44_100, 48_000, 192_000])
def test_every_rate_gives_about_the_same_voice(reader: PromptReader, rate: int) -> None:
    original, other = sound(2.0), sound(2.0, rate)
    one, two = reader.read("me", original, RATE, []), reader.read("me", other, rate, [])
    assert len(one.prompt_speech_tokens) == len(two.prompt_speech_tokens) == 50
    assert float(torch.cosine_similarity(vector(one), vector(two), dim=0)) > 0.95
    low = [
        torch.from_numpy(np.frombuffer(each.prompt_mel, "<f4").copy()).reshape(-1, 80)[:, :60] for each in (one, two)
    ]
    assert float((low[0] - low[1]).abs().mean()) < 0.1


def test_thirty_seconds_are_allowed_and_no_more(reader: PromptReader) -> None:
    longest = sound(30.0, 16_000)
    assert len(reader.read("me", longest, 16_000, []).prompt_speech_tokens) == 750
    with pytest.raises(InvalidRequest, match=r"lasts 30\.00 s \(480001 samples at 16000 a second\), allowed 1 to 30 s"):
        reader.read("me", torch.cat([longest, longest[:1]]), 16_000, [])


def changed(wave: Tensor, start: int, stop: int, value: float) -> Tensor:
    copy = wave.clone()
    copy[start:stop] = value
    return copy


GOOD = sound(2.0)


@pytest.mark.parametrize(
    ("wave", "rate", "said"),
    [
        (GOOD[: RATE - 1], RATE, r"lasts 1\.00 s \(23999 samples at 24000 a second\), allowed 1 to 30 s"),
        (GOOD[:0], RATE, "lasts 0.00 s"),
        (GOOD, 15_950, "sample rate of 15950, allowed 16000 to 192000 in steps of 50"),
        (GOOD, 44_101, "sample rate of 44101, allowed 16000 to 192000 in steps of 50"),
        (GOOD, 384_000, "sample rate of 384000, allowed 16000 to 192000"),
        (GOOD, 0, "sample rate of 0, allowed 16000"),
        (changed(GOOD, 7, 8, float("nan")), RATE, "is nan at sample 7, expected finite"),
        (changed(GOOD, 47_999, 48_000, float("-inf")), RATE, "is -inf at sample 47999, expected finite"),
        (
            torch.zeros(RATE),
            RATE,
            r"is silent: its loudest 0\.1 s has a root mean square of 0\.00000, allowed from 0\.003",
        ),
        (torch.full((RATE,), 0.5), RATE, "is silent"),
        (GOOD / 200, RATE, "is silent"),
        (
            changed(GOOD, 12_000, 12_480, 1.0),
            RATE,
            r"is clipped: 1\.00 % of its samples lie at full scale .* first at 0\.50 s; allowed 0\.1 %",
        ),
        ((4 * GOOD).clamp(-1, 1), RATE, "is clipped"),
    ],
)
def test_unsuitable_recordings_are_refused(reader: PromptReader, wave: Tensor, rate: int, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        reader.read("me", wave, rate, [1])


def test_what_is_allowed_at_the_edges(reader: PromptReader) -> None:
    reader.read("me", GOOD / 30, RATE, [1])
    voice = reader.read("me", changed(GOOD, 100, 148, 1e30), RATE, [1])
    assert np.isfinite(np.frombuffer(voice.prompt_mel, "<f4")).all()


@pytest.mark.parametrize(
    ("voice_id", "ids", "said"),
    [("", [1], "the voice's id has 0"), ("a", [-1], "prompt_text_ids holds -1"), ("a", [1] * 2049, "2049")],
)
def test_an_unfit_id_or_transcript(reader: PromptReader, voice_id: str, ids: list[int], said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        reader.read(voice_id, GOOD, RATE, ids)


@pytest.mark.parametrize("wave", [GOOD[None], GOOD.double()])
def test_another_shape_or_type_is_a_fault_of_the_program(reader: PromptReader, wave: Tensor) -> None:
    with pytest.raises(ValueError, match="expected float32"):
        reader.read("me", wave, RATE, [1])


def test_a_gpu_is_used_where_the_runtime_supports_one_and_done_without_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert PromptReader(ModelDirectory(DEMO), device="cuda:0").read("me", GOOD, RATE, [1]).prompt_speech_tokens
    assert onnx_network.available_device() == "cpu"
    monkeypatch.setattr(
        onnx_network.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    assert onnx_network.available_device() == "cuda"
    assert onnx_network._providers("cuda:1") == [("CUDAExecutionProvider", {"device_id": 1}), "CPUExecutionProvider"]


Shape = list[int | str]


def constant(values: np.ndarray) -> onnx.NodeProto:
    """A node that always returns `values`."""
    return helper.make_node("Constant", [], ["out"], value=onnx.numpy_helper.from_array(values))


def network(path: Path, inputs: list[tuple[int, Shape]], kind: int, node: onnx.NodeProto, shape: Shape) -> None:
    """A network of one node, from in0, in1 ... to out."""
    given = [helper.make_tensor_value_info(f"in{place}", kind_of, size) for place, (kind_of, size) in enumerate(inputs)]
    graph = helper.make_graph([node], "one node", given, [helper.make_tensor_value_info("out", kind, shape)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


LISTENS: list[tuple[int, Shape]] = [(TensorProto.FLOAT, [1, 128, "frames"]), (TensorProto.INT32, [1])]
KNOWS: list[tuple[int, Shape]] = [(TensorProto.FLOAT, ["batch", "frames", 80])]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (SPEECH_TOKENIZER, SPEAKER_ENCODER):
        shutil.copy(DEMO / name, tmp_path / name)
    shutil.copy(DEMO / "cosyvoice2.yaml", tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [SPEECH_TOKENIZER, SPEAKER_ENCODER])
def test_a_missing_or_damaged_file_is_named(folder: Path, name: str) -> None:
    whole = (folder / name).read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"not a network"):
        (folder / name).write_bytes(damaged)
        with pytest.raises(ModelError, match=f"{name}: not a network that ONNX Runtime can run"):
            PromptReader(ModelDirectory(folder))
    (folder / name).unlink()
    with pytest.raises(ModelError, match=f"{name}: missing"):
        PromptReader(ModelDirectory(folder))


@pytest.mark.parametrize(
    ("name", "inputs", "kind", "shape", "said"),
    [
        (
            SPEECH_TOKENIZER,
            [(TensorProto.FLOAT, [1, 80, "frames"]), LISTENS[1]],
            TensorProto.INT32,
            [1, 2],
            r"input 0 is tensor\(float\) \[1, 80, 'frames'\]",
        ),
        (
            SPEECH_TOKENIZER,
            [(TensorProto.FLOAT, [1, 128, 3000]), LISTENS[1]],
            TensorProto.INT32,
            [1, 2],
            r"input 0 .* expected tensor\(float\) \[1, 128, any\]",
        ),
        (
            SPEECH_TOKENIZER,
            [LISTENS[0], (TensorProto.INT64, [1])],
            TensorProto.INT32,
            [1, 2],
            r"input 1 is tensor\(int64\)",
        ),
        (SPEECH_TOKENIZER, [LISTENS[0]], TensorProto.INT32, [1, 2], "has 1 inputs, expected 2"),
        (SPEECH_TOKENIZER, LISTENS, TensorProto.FLOAT, [1, 2], r"first output is tensor\(float\)"),
        (
            SPEAKER_ENCODER,
            KNOWS,
            TensorProto.FLOAT,
            [1, 256],
            r"the first output is tensor\(float\) \[1, 256\], expected .* \[1, 192\]",
        ),
    ],
)
def test_another_signature(
    folder: Path, name: str, inputs: list[tuple[int, Shape]], kind: int, shape: list[int], said: str
) -> None:
    network(folder / name, inputs, kind, constant(np.zeros(shape, helper.tensor_dtype_to_np_dtype(kind))), [*shape])
    with pytest.raises(ModelError, match=f"{name}: .*{said}"):
        PromptReader(ModelDirectory(folder))


def test_other_names_and_the_published_open_shapes_are_read(folder: Path) -> None:
    tokens, vectors = np.array([[5, 6, 7]], np.int32), np.ones((1, 192), np.float32)
    network(folder / SPEECH_TOKENIZER, LISTENS, TensorProto.INT32, constant(tokens), ["batch", "tokens"])
    network(folder / SPEAKER_ENCODER, KNOWS, TensorProto.FLOAT, constant(vectors), ["batch", 192])
    voice = PromptReader(ModelDirectory(folder)).read("me", GOOD, RATE, [1])
    assert (voice.prompt_speech_tokens, len(voice.prompt_mel)) == ((5, 6, 7), 4 * 80 * 6)
    assert bool((vector(voice) == 1).all())


@pytest.mark.parametrize(
    ("name", "inputs", "kind", "node", "said"),
    [
        (SPEECH_TOKENIZER, LISTENS, TensorProto.INT32, constant(np.array([[]], np.int32)), "returned 0 tokens"),
        (SPEECH_TOKENIZER, LISTENS, TensorProto.INT32, constant(np.array([[5, 6561]], np.int32)), "from 5 to 6561"),
        (SPEECH_TOKENIZER, LISTENS, TensorProto.INT32, constant(np.array([[-1]], np.int32)), "from -1 to -1"),
        (
            SPEAKER_ENCODER,
            KNOWS,
            TensorProto.FLOAT,
            constant(np.full((1, 192), np.nan, np.float32)),
            f"{SPEAKER_ENCODER} returned a value that is not finite",
        ),
        # Another size than the file declares.
        (
            SPEAKER_ENCODER,
            KNOWS,
            TensorProto.FLOAT,
            helper.make_node("Flatten", ["in0"], ["out"]),
            f"{SPEAKER_ENCODER} returned 15840 values, expected 192",
        ),
    ],
)
def test_results_that_no_voice_can_hold(
    folder: Path, name: str, inputs: list[tuple[int, Shape]], kind: int, node: onnx.NodeProto, said: str
) -> None:
    network(folder / name, inputs, kind, node, ["batch", "size"])
    with pytest.raises(InternalFault, match=said):
        PromptReader(ModelDirectory(folder)).read("me", GOOD, RATE, [1])


def test_resampling_for_a_rate_needs_little_memory() -> None:
    """The steps of 50 keep the filters small; this is the worst rate of all."""
    assert resample(sound(1.0, 191_950)[None], 191_950, RATE).shape == (1, RATE)


def tone(hertz: float, rate: int, seconds: float = 0.5) -> torch.Tensor:
    return (
        0.5 * torch.sin(2 * math.pi * hertz * torch.arange(int(rate * seconds), dtype=torch.float64) / rate)
    ).float()


def test_frame_rates() -> None:
    assert mel_spectrogram(tone(440, 24_000)[None]).shape == (1, 80, 25)
    assert kaldi_fbank(tone(440, 16_000)).shape == (48, 80)
    assert whisper_log_mel(tone(440, 16_000)[None]).shape == (1, 128, 50)


def test_a_tone_survives_resampling() -> None:
    down = resample(tone(440, 48_000)[None], 48_000, 16_000)
    assert down.shape == (1, 8000)
    assert torch.allclose(down[0, 100:-100], tone(440, 16_000)[100:-100], atol=2e-3)
    same = tone(440, 16_000)[None]
    assert resample(same, 16_000, 16_000) is same


def test_what_lies_above_the_new_nyquist_is_removed() -> None:
    assert resample(tone(11_000, 48_000)[None], 48_000, 16_000)[0, 100:-100].abs().max() < 5e-3


def test_the_mean_over_time_is_subtracted() -> None:
    assert speaker_features(tone(440, 16_000) * torch.linspace(0, 1, 8000)).mean(dim=0).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("compute", "wave", "said"),
    [
        (mel_spectrogram, torch.zeros(1, 720), "more than 720 samples"),
        (mel_spectrogram, torch.zeros(2000), "more than 720 samples"),
        (kaldi_fbank, torch.zeros(399), "at least 400 samples"),
        (whisper_log_mel, torch.zeros(1, 200), "more than 200 samples"),
        (partial(resample, source_rate=0, target_rate=16_000), torch.zeros(1, 10), "rates are 0 and 16000"),
        (partial(resample, source_rate=8_000, target_rate=16_000), torch.zeros(10), r"expected \[batch, samples\]"),
    ],
)
def test_bad_waves_are_named(compute: Callable[[Tensor], Tensor], wave: Tensor, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compute(wave)
