"""`verify` says yes to the reference bundle, and no, by name, to everything that is not it. So too
of a bundle with other layer sizes than `tiny`, in which the reference's second feeding of the last
speech embedding changes what follows the end of the text: a correct bundle passes, and a wrong
token in front of that end does not.
"""

import contextlib
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.errors import ModelError, NonFinite
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.model_directory import ModelDirectory
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.weights import ServedModel, expected_tensors
from services.llm.generation.config import read_config
from services.llm.generation.interleaved_text import ContinuousText
from services.llm.generation.script import START, TASK, Input, speech_inputs, text_inputs
from services.token2wav.flow.flow import VoicePrompt
from services.token2wav.flow.past import REFERENCE_CUT
from tools.verify import llm as verify_llm
from tools.verify.__main__ import main
from tools.verify.report import Report, Row
from tools.verify.step_audio2.listening import ListeningFlow, loaded

TINY, TINY3 = Path(__file__).parent / "tiny", Path(__file__).parent / "tiny3"
STEP_AUDIO2 = Path(__file__).parent / "tiny-stepaudio2"


def verify(directory: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, dict[str, object]]]:
    """Exit status, and the row of every array that is not ok."""
    status = main([str(directory), "--json"])
    stages = json.loads(capsys.readouterr().out)["stages"]
    return status, {row["array"]: row for rows in stages.values() for row in rows if row["verdict"] != "ok"}


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The small bundle, to be changed."""
    return Path(shutil.copytree(TINY, tmp_path / "bundle"))


def read(path: Path) -> dict[str, np.ndarray]:
    with np.load(path) as stored:
        return {name: stored[name] for name in stored.files}


@contextlib.contextmanager
def rewritten(path: Path) -> Iterator[dict[str, np.ndarray]]:
    """The arrays of a file, to be changed inside."""
    arrays = read(path)
    yield arrays
    np.savez(path, **arrays)


@pytest.mark.parametrize(("bundle", "rows"), [(TINY, 150), (TINY3, 480)], ids=["tiny", "tiny3"])
def test_every_array_of_a_reference_bundle_passes(bundle: Path, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(bundle), "--json"]) == 0
    stages = json.loads(capsys.readouterr().out)["stages"]
    assert stages.keys() >= {"text", "features", "llm", "flow", "vocoder", "token2wav"}
    verdicts = [row["verdict"] for rows in stages.values() for row in rows]
    assert verdicts == ["ok"] * max(rows, len(verdicts))


def test_every_array_of_a_decoder_alone_passes_and_a_changed_one_fails_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundle = Path(shutil.copytree(STEP_AUDIO2, tmp_path / "bundle"))
    with rewritten(bundle / "stream.npz") as arrays:
        arrays["B_step_mel4"][0, 3, 7] += 0.001
    with rewritten(bundle / "encoder.npz") as arrays:
        arrays["novel"] = np.zeros(2, np.float32)
    assert main([str(bundle), "--json"]) == 1
    stages = json.loads(capsys.readouterr().out)["stages"]
    rows = [row for rows in stages.values() for row in rows]
    assert len(rows) >= 164
    bad = {row["array"]: row["verdict"] for row in rows if row["verdict"] != "ok"}
    assert bad == {"stream.npz/B_step_mel4": "FAIL", "encoder.npz/novel": "MISSING"}


def test_another_network_and_numbers_that_are_not_finite_are_said_as_what_they_are() -> None:
    with pytest.raises(ModelError, match="tiny3: the flow's network is a DitNetwork"):
        loaded(TINY3)
    flow = ListeningFlow(*loaded(STEP_AUDIO2), torch.full((400, 80), torch.nan))
    said = VoicePrompt(torch.arange(20), torch.zeros(40, 80), torch.ones(192))
    with pytest.raises(NonFinite, match="behind token 0"):
        next(flow.calls(said, torch.arange(30), [30], REFERENCE_CUT))


def test_a_perturbed_weight_fails_and_names_what_it_reaches(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = torch.load(copied / "llm.pt", weights_only=True)
    weights["llm_decoder.bias"][17] += 0.01
    torch.save(weights, copied / "llm.pt")
    status, bad = verify(copied, capsys)
    assert (status, bad["llm.npz/logprobs_forced"]["verdict"]) == (1, "FAIL")
    assert not [array for array in bad if not array.startswith("llm.npz/")]


def test_references_that_are_changed_deleted_or_of_no_stage_fail_by_name(
    copied: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with rewritten(copied / "hift.npz") as arrays:
        arrays["wav_zero_noise"][0, 1000] += 0.01
    with rewritten(copied / "features.npz") as arrays:
        del arrays["mel24k"]
    shapes = json.loads((copied / "arrays.json").read_text())
    shapes["estimator"]["novel"] = [[2], "float32"]
    (copied / "arrays.json").write_text(json.dumps(shapes))
    with rewritten(copied / "estimator.npz") as arrays:
        arrays["novel"] = np.zeros(2, np.float32)
    status, bad = verify(copied, capsys)
    wanted = {
        "hift.npz/wav_zero_noise": "FAIL",
        "features.npz/mel24k": "MISSING",
        "estimator.npz/novel": "MISSING",
    }
    assert (status, {array: row["verdict"] for array, row in bad.items()}) == (1, wanted)
    assert bad["hift.npz/wav_zero_noise"]["error"] == pytest.approx(0.01, abs=2e-3)


def test_a_model_without_references_does_not_pass(copied: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path in [*copied.glob("*.npz"), copied / "arrays.json", copied / "text_frontend.json"]:
        path.unlink()
    status, bad = verify(copied, capsys)
    assert status == 1
    files = ("llm", "flow_encoder", "estimator", "flow_mel", "token2wav_stream", "hift")
    assert {"arrays.json", *(f"{file}.npz" for file in files)} <= set(bad)


def test_no_directory_and_no_model_have_their_own_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for directory, status, words in (
        (tmp_path / "nothing", 2, f"{tmp_path}/nothing: no such directory"),
        (tmp_path, 3, "cosyvoice*.yaml: missing"),
    ):
        assert main([str(directory)]) == status
        assert words in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [(["nothing"], 2, "no such directory"), (["."], 3, "missing"), ([], 2, "required")],
)
def test_a_failure_is_an_object_where_one_was_asked_for(
    arguments: list[str],
    status: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*arguments, "--json"]) == status
    printed = capsys.readouterr()
    assert message in json.loads(printed.out)["error"]["message"]
    assert not printed.err


SIZES = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
}
LIMIT = 90
SPEECH = COSYVOICE2.speech
TEXT = tuple(range(20, 41))
CASES = {"with_prompt": (tuple(range(100, 109)), tuple(range(3000, 3020))), "no_prompt": ((), ())}


def recorded(
    model: SpeechTokenModel, prompt_text: tuple[int, ...], prompt_speech: tuple[int, ...]
) -> tuple[list[int], list[int]]:
    """The tokens sent and the decisions sampled by the reference's loop, as section 3.4 of the
    compatibility specification has it.
    """
    cache = SequenceCache.reserve(model.config, 400, model.device)
    waiting, speech = text_inputs(list(prompt_text)), speech_inputs(list(prompt_speech))
    lm_input: list[Input] = [START]
    out, sent, sampled = list[int](), list[int](), list[int]()
    next_fill = (len(speech) // 15 + 1) * 15 - len(speech)

    def best(*, ending: bool) -> int:
        scores = model.log_probabilities(model.forward(model.embed(lm_input), cache)[-1:])[0].numpy().copy()
        if ending and len(out) >= LIMIT:
            sampled.append(SPEECH.end)
        else:
            scores[[*SPEECH.all_but(SPEECH.fill)]] = -np.inf
            sampled.append(int(scores.argmax()))
        return sampled[-1]

    for text_id in TEXT:
        waiting += text_inputs([text_id])
        while speech and len(waiting) >= 5:
            lm_input = lm_input + waiting[:5] + speech[:15]
            waiting, speech = waiting[5:], speech[15:]
        if speech:
            continue
        if (out and out[-1] == SPEECH.fill) or (not out and lm_input == [START]):
            if len(waiting) < 5:
                continue
            lm_input = waiting[:5] if out else lm_input + waiting[:5]
            waiting = waiting[5:]
        while True:
            if len(out) == next_fill:
                model.forward(model.embed(lm_input), cache)
                chosen = SPEECH.fill
            else:
                chosen = best(ending=False)
            if chosen == SPEECH.fill:
                next_fill = len(out) + 16
            out.append(chosen)
            if chosen >= SPEECH.tokens:
                break
            sent.append(chosen)
            lm_input = speech_inputs([chosen])
    lm_input = [*lm_input, *waiting, TASK]
    while (chosen := best(ending=True)) != SPEECH.end:
        out.append(chosen)
        sent.append(chosen)
        lm_input = speech_inputs([chosen])
    return sent, sampled


def model_of(directory: Path) -> SpeechTokenModel:
    return ServedModel.read(directory).load(torch.device("cpu"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("other") / "bundle"
    shutil.copytree(TINY, directory, ignore=shutil.ignore_patterns("*.npz", "*.pt", "arrays.json"))
    backbone = directory / "CosyVoice-BlankEN" / "config.json"
    backbone.write_text(json.dumps(json.loads(backbone.read_text()) | SIZES))
    yaml = directory / "cosyvoice2.yaml"
    yaml.write_text(re.sub(r"(llm_(in|out)put_size): 64", r"\1: 48", yaml.read_text()))
    generator = torch.Generator().manual_seed(11)
    shapes = expected_tensors(read_config(ModelDirectory(directory)))
    # Large enough that each position changes the best id; norms near 1.
    weights = {name: 1.5 * torch.randn(shape, generator=generator) / shape[-1] ** 0.5 for name, shape in shapes.items()}
    for name, shape in shapes.items():
        if name.endswith("norm.weight"):
            weights[name] = torch.ones(shape)
        elif "embed" in name:
            weights[name] *= shape[-1] ** 0.5
    torch.save(weights, directory / "llm.pt")
    prompt_text, prompt_speech = CASES["with_prompt"]
    arrays = {
        "bistream_text_ids": np.array([TEXT]), "bistream_limit": np.array(LIMIT),
        "prompt_text_ids": np.array([prompt_text]), "bistream_prompt_speech_ids": np.array([prompt_speech]),
    }  # fmt: skip
    with torch.inference_mode():
        model = model_of(directory)
        for case, (text, speech) in CASES.items():
            arrays[f"bistream_tokens_{case}"], arrays[f"bistream_sampled_{case}"] = map(
                np.array, recorded(model, text, speech)
            )
    np.savez(directory / "llm.npz", **arrays)
    return directory


def bistream_rows(directory: Path) -> dict[str, Row]:
    report = Report()
    verify_llm.verify(directory, report)
    return {row.array: row for row in report.rows if "/bistream_" in row.array}


@pytest.mark.parametrize("case", CASES)
def test_the_second_feeding_matters_in_this_bundle(bundle: Path, case: str) -> None:
    """Else the tests below would show nothing."""
    arrays = read(bundle / "llm.npz")
    served = verify_llm._Bundle(model_of(bundle), arrays).interleaved(ContinuousText, case, "tokens")
    assert served != arrays[f"bistream_tokens_{case}"].tolist()


def test_a_correct_bundle_of_other_sizes_passes(bundle: Path) -> None:
    rows = bistream_rows(bundle)
    assert [row.verdict for row in rows.values()] == ["ok"] * 6
    held = [name for name in rows if "(continuous" in name]
    assert {name.split(" ")[0] for name in held} == {f"llm.npz/bistream_tokens_{case}" for case in CASES}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("place", "continuous"), [(20, "FAIL"), (-1, "ok")])
def test_a_wrong_token_fails_the_served_profile_only_before_the_text_ends(
    bundle: Path, tmp_path: Path, case: str, place: int, continuous: str
) -> None:
    bundle_copy = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    with rewritten(bundle_copy / "llm.npz") as arrays:
        arrays[f"bistream_tokens_{case}"][place] += 1
    array = f"llm.npz/bistream_tokens_{case}"
    verdicts = {name: row.verdict for name, row in bistream_rows(bundle_copy).items() if name.startswith(array)}
    assert (verdicts.pop(array), list(verdicts.values())) == ("FAIL", [continuous])
