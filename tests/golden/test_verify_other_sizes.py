"""`verify` of a bundle with other layer sizes than `tiny`, in which the reference's second feeding
of the last speech embedding changes what follows the end of the text: a correct bundle passes, and
a wrong token in front of that end does not."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from cosyserve.model_directory import ModelDirectory
from cosyserve.spec import END_OF_SPEECH, FILL, RESERVED_SPEECH, SPEECH_VOCABULARY
from services.llm.engine.kv_cache import SequenceCache
from services.llm.engine.model import SpeechTokenModel
from services.llm.engine.weights import expected_tensors, load_tensors
from services.llm.generation.config import read_config
from services.llm.generation.interleaved_text import ContinuousText
from services.llm.generation.script import START, TASK, Input, speech_inputs, text_inputs
from tools.verify.llm import _Bundle, verify
from tools.verify.report import Report, Row

TINY = Path(__file__).parent / "tiny"
SIZES = {
    "hidden_size": 48,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 3,
}
LIMIT = 90
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
    out: list[int] = []
    sent: list[int] = []
    sampled: list[int] = []
    next_fill = (len(speech) // 15 + 1) * 15 - len(speech)

    def best(*, ending: bool) -> int:
        scores = model.log_probabilities(model.forward(model.embed(lm_input), cache)[-1:])[0].numpy().copy()
        if ending and len(out) >= LIMIT:
            sampled.append(END_OF_SPEECH)
        else:
            scores[[END_OF_SPEECH, RESERVED_SPEECH]] = -np.inf
            sampled.append(int(scores.argmax()))
        return sampled[-1]

    for text_id in TEXT:
        waiting += text_inputs([text_id])
        while speech and len(waiting) >= 5:
            lm_input = lm_input + waiting[:5] + speech[:15]
            waiting, speech = waiting[5:], speech[15:]
        if speech:
            continue
        if (out and out[-1] == FILL) or (not out and lm_input == [START]):
            if len(waiting) < 5:
                continue
            lm_input = waiting[:5] if out else lm_input + waiting[:5]
            waiting = waiting[5:]
        while True:
            if len(out) == next_fill:
                model.forward(model.embed(lm_input), cache)
                chosen = FILL
            else:
                chosen = best(ending=False)
            if chosen == FILL:
                next_fill = len(out) + 16
            out.append(chosen)
            if chosen >= SPEECH_VOCABULARY:
                break
            sent.append(chosen)
            lm_input = speech_inputs([chosen])
    lm_input = [*lm_input, *waiting, TASK]
    while (chosen := best(ending=True)) != END_OF_SPEECH:
        out.append(chosen)
        sent.append(chosen)
        lm_input = speech_inputs([chosen])
    return sent, sampled


def model_of(directory: Path) -> SpeechTokenModel:
    known = ModelDirectory(directory)
    config = read_config(known)
    return SpeechTokenModel.build(config, load_tensors(known, config), torch.device("cpu"))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("other") / "bundle"
    shutil.copytree(TINY, directory, ignore=shutil.ignore_patterns("*.npz", "*.pt", "arrays.json"))
    backbone = directory / "CosyVoice-BlankEN" / "config.json"
    backbone.write_text(json.dumps(json.loads(backbone.read_text()) | SIZES))
    yaml = directory / "cosyvoice2.yaml"
    sized = (
        yaml.read_text()
        .replace("llm_input_size: 64", "llm_input_size: 48")
        .replace("llm_output_size: 64", "llm_output_size: 48")
    )
    yaml.write_text(sized)
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
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    arrays = {"bistream_text_ids": np.array([TEXT]), "bistream_limit": np.array(LIMIT)}
    arrays |= {
        "prompt_text_ids": np.array([CASES["with_prompt"][0]]),
        "bistream_prompt_speech_ids": np.array([CASES["with_prompt"][1]]),
    }
    with torch.inference_mode():
        model = model_of(directory)
        for case, (text, speech) in CASES.items():
            arrays[f"bistream_tokens_{case}"], arrays[f"bistream_sampled_{case}"] = map(
                np.array, recorded(model, text, speech)
            )
    torch.set_num_threads(threads)
    np.savez(directory / "llm.npz", **arrays)
    return directory


def bistream_rows(directory: Path) -> dict[str, Row]:
    report = Report()
    verify(directory, report)
    return {row.array: row for row in report.rows if "/bistream_" in row.array}


@pytest.mark.parametrize("case", CASES)
def test_the_second_feeding_matters_in_this_bundle(bundle: Path, case: str) -> None:
    """Else the tests below would show nothing."""
    with np.load(bundle / "llm.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    served = _Bundle(model_of(bundle), arrays).interleaved(ContinuousText, case, "tokens")
    assert served != arrays[f"bistream_tokens_{case}"].tolist()


def test_a_correct_bundle_of_other_sizes_passes(bundle: Path) -> None:
    rows = bistream_rows(bundle)
    assert {name: row.verdict for name, row in rows.items() if row.verdict != "ok"} == {}
    assert len(rows) == 6
    held = [name for name in rows if "(continuous" in name]
    assert {name.split(" ")[0] for name in held} == {f"llm.npz/bistream_tokens_{case}" for case in CASES}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("place", "continuous"), [(20, "FAIL"), (-1, "ok")])
def test_a_wrong_token_fails_the_served_profile_only_before_the_text_ends(
    bundle: Path, tmp_path: Path, case: str, place: int, continuous: str
) -> None:
    changed = Path(shutil.copytree(bundle, tmp_path / "bundle"))
    with np.load(bundle / "llm.npz") as stored:
        arrays = {name: stored[name] for name in stored.files}
    arrays[f"bistream_tokens_{case}"][place] += 1
    np.savez(changed / "llm.npz", **arrays)
    verdicts = {
        name: row.verdict
        for name, row in bistream_rows(changed).items()
        if name.startswith(f"llm.npz/bistream_tokens_{case}")
    }
    assert sorted(verdicts.values()) == sorted(["FAIL", continuous])
    assert verdicts[f"llm.npz/bistream_tokens_{case}"] == "FAIL"
