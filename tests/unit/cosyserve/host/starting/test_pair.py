"""A model of two directories: weights, engines and notes of flow and vocoder are those of the
second.
"""

import json
from pathlib import Path

import pytest

from cosyserve.engines import benchmark_note
from cosyserve.generations.cosyvoice2 import COSYVOICE2
from cosyserve.generations.separate_decoder import STEP_AUDIO2
from cosyserve.host.doctor.examination import examine
from cosyserve.host.doctor.installation_checks import checkpoint_bytes, flow_and_vocoder
from cosyserve.host.starting.configurations import BY_NAME
from cosyserve.host.starting.engine_builds import build_commands
from cosyserve.host.starting.measurement import Trial, read_notes, write_notes
from cosyserve.host.starting.plan import configurations_to_compare, make_plan
from cosyserve.model_directory import ModelDirectory
from services.token2wav.flow.past import PROMPT_AND_NEWEST
from services.token2wav.flow.step_dit.weights import StepDitConfig
from services.token2wav.inputs.request import MAX_TOKENS
from tests.stacks.up_process import STEP_AUDIO2 as DECODER
from tests.stacks.up_process import TINY
from tests.unit.cosyserve.host.fake_gpu import gpu, machine
from tests.unit.cosyserve.host.starting.test_measurement import trials
from tests.unit.cosyserve.host.starting.test_plan import FULL

ENGINES = "COSYSERVE_TOKEN2WAV_ENGINES"


def test_weights_are_those_of_both() -> None:
    both = sum(path.stat().st_size for path in (TINY / "llm.pt", DECODER / "flow.pt", DECODER / "hift.pt"))
    assert checkpoint_bytes(TINY, DECODER) == both
    assert checkpoint_bytes(TINY) == sum((TINY / name).stat().st_size for name in ("llm.pt", "flow.pt", "hift.pt"))
    found = {
        finding.check: finding.observed for finding in examine(TINY, "127.0.0.1:0", decoder_model=DECODER).findings
    }
    assert found["token2wav model"].endswith("flow and vocoder of Step-Audio2, complete, 3 MB")


def test_a_second_of_its_state_is_smaller(tmp_path: Path) -> None:
    assert flow_and_vocoder(TINY, DECODER) is STEP_AUDIO2
    assert flow_and_vocoder(TINY) is flow_and_vocoder(tmp_path) is COSYVOICE2
    alone, pair = (
        make_plan(BY_NAME["compile+fp16"], machine(gpu()), TINY, forced=True, decoder_model=decoder).why[-1]
        for decoder in (None, DECODER)
    )
    assert int(pair.split()[2]) == pytest.approx(int(alone.split()[2]) * 231 / 67, abs=2)
    assert "sound at the published sizes, prompts included, plus" in alone
    assert "sound at the published sizes, of prompts and, of each stream, at most the newest 3 s, plus" in pair


def test_the_published_sizes() -> None:
    """A second of state as it is declared, and what the longest sentence holds behind its prompt:
    150 frames of everything, and the encoder's share of the others.
    """
    config = StepDitConfig(
        vocabulary=6561, speaker=192, input_width=512, encoder_width=512, encoder_heads=8, encoder_feed_forward=2048,
        encoder_layers=6, encoder_upsampled_layers=4, guidance=0.7, width=512, depth=16, heads=8, head_width=64,
        feed_forward=2048,
    )  # fmt: skip
    assert 50 * config.state_bytes_per_frame() == pytest.approx(STEP_AUDIO2.state_bytes_per_second, rel=0.01)
    held, encoder = PROMPT_AND_NEWEST.held_frames, 50 * config.encoder_bytes_per_frame
    assert held == 150 == 50 * (STEP_AUDIO2.kept_seconds or 0)
    bound = held * config.state_bytes_per_frame()
    longest = bound + int((2 * MAX_TOKENS - held) * config.encoder_bytes_per_frame)
    print(f"bounded {bound / 1e6:.0f} MB, {encoder / 1e6:.2f} MB a second, longest sentence {longest / 1e6:.0f} MB")
    assert longest < 2.2 * bound


@pytest.mark.parametrize(("name", "step"), [("trt+fp16", ["build", "token2wav"]), ("onnx", ["export"])])
def test_its_engines_are_built_and_looked_for(name: str, step: list[str], tmp_path: Path) -> None:
    environ = {ENGINES: str(tmp_path)}
    plan = make_plan(BY_NAME[name], FULL, TINY, forced=True, decoder_model=DECODER, environ=environ)
    (command, *_) = build_commands(plan.backends, FULL, TINY, {**environ, **plan.environ}, DECODER)
    assert command[: len(step) + 1] == [*step, str(DECODER)]
    found, _ = configurations_to_compare(FULL, TINY, will_build=False, decoder_model=DECODER, environ=environ)
    assert found == []


def test_notes_are_of_the_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark_note, "visible_gpus", lambda: [{"gpu": "a test"}])
    environ = {f"COSYSERVE_{service}_ENGINES": str(tmp_path) for service in ("LLM", "TOKEN2WAV")}
    measured: list[Trial] = trials(compile=0.2, trt=0.1)
    assert write_notes(measured, TINY, environ, DECODER) == {"token2wav": "tensorrt"}
    (note,) = tmp_path.iterdir()
    weights = ModelDirectory(DECODER).content_hash(benchmark_note.TOKEN2WAV.weight_files)
    assert json.loads(note.read_text())["facts"]["model"] == weights
    assert read_notes(TINY, environ, DECODER) == {"token2wav": "tensorrt"}
    assert read_notes(TINY, environ) == {}
