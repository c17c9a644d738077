"""A model of two directories: pairs that fit, and those that are refused by name before any weights
are read.
"""

import re
import shutil
from pathlib import Path

import pytest

from cosyserve.engines.kernel_cache import Unsuitable
from cosyserve.errors import ModelError, SettingsError
from cosyserve.generations.model_pair import DECODER_MODEL, decoding_directory, pair_variables
from cosyserve.generations.reading import generation_of
from cosyserve.generations.separate_decoder import STEP_AUDIO2, decoder_of
from cosyserve.host.doctor.finding import State
from cosyserve.host.doctor.installation_checks import check_model
from cosyserve.model_directory import ModelDirectory
from services.frontend.__main__ import read_model
from services.frontend.settings import FrontendSettings
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.gpu.paged_flow import networks
from services.token2wav.gpu.paged_flow.networks import paged_network
from services.token2wav.loading import load_backend
from tests.stacks.up_process import STEP_AUDIO2 as DECODER
from tests.stacks.up_process import TINY, TINY3


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """The decoder's directory, to be changed."""
    return Path(shutil.copytree(DECODER, tmp_path / "decoder", ignore=shutil.ignore_patterns("*.npz")))


def refused(model: Path, decoder_model: Path, words: str) -> None:
    """By the check itself, by the engine and by the doctor."""
    for check in (
        lambda: decoding_directory(model, decoder_model),
        lambda: load_backend("torch", EngineSettings(model=model, decoder_model=decoder_model)),
    ):
        with pytest.raises(ModelError, match=words):
            check()
    wrong = [finding for finding in check_model(model, decoder_model) if finding.state is State.PROBLEM]
    assert any(re.search(words, finding.observed) for finding in wrong)


def test_the_pair_is_served() -> None:
    assert decoder_of(decoding_directory(TINY, DECODER)) is STEP_AUDIO2
    assert decoding_directory(TINY, None).path == TINY
    assert pair_variables(TINY, DECODER) == {DECODER_MODEL: str(DECODER)}
    assert pair_variables(TINY, None) == {}
    assert pair_variables(TINY, TINY) == {DECODER_MODEL: str(TINY)}
    findings = [finding for finding in check_model(TINY, DECODER) if finding.check == "token2wav model"]
    assert [(finding.state, finding.observed) for finding in findings] == [
        (State.OK, f"{DECODER}: flow and vocoder of Step-Audio2, complete, 3 MB")
    ]


def test_the_identity_is_that_of_flow_and_vocoder() -> None:
    plain = load_backend("torch", EngineSettings(model=TINY)).identity
    pair = load_backend("torch", EngineSettings(model=TINY, decoder_model=DECODER)).identity
    assert pair.model_hash == ModelDirectory(DECODER).content_hash(("flow.pt", "hift.pt", "flow.yaml"))
    assert pair != plain


def test_other_speech_tokens_are_refused(tmp_path: Path) -> None:
    refused(TINY3, DECODER, "Step-Audio2 decodes the speech tokens of CosyVoice2; .*tiny3 is a directory of CosyVoice3")
    refused(TINY, TINY3, "tiny3: its flow and vocoder are of CosyVoice3")
    refused(TINY, tmp_path, "a directory of flow and vocoder alone needs flow.yaml, flow.pt and hift.pt")


def test_a_decoder_alone_is_no_model() -> None:
    with pytest.raises(ModelError, match=r"none of .*; with flow.yaml it holds flow and vocoder alone"):
        generation_of(ModelDirectory(DECODER))
    for check in (
        lambda: load_backend("torch", EngineSettings(model=DECODER)),
        lambda: pair_variables(DECODER, None),
        lambda: read_model(FrontendSettings(listen="127.0.0.1:0", model=DECODER)),
    ):
        with pytest.raises(ModelError, match=r"flow and vocoder of Step-Audio2 alone; .*--token2wav-model"):
            check()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("vocab_size: 6561", "vocab_size: 4096", r"flow.vocab_size = 4096; .*llm.speech_token_size = 6561"),
        (
            "decoder_dit.DiT",
            "decoder.ConditionalDecoder",
            "flow.decoder.estimator is ConditionalDecoder; .* Step-Audio2",
        ),
        ("!new:cosyvoice2.flow.decoder_dit.DiT", "!import:os", "only !new:, !name:, !apply: and !ref are read"),
    ],
)
def test_another_yaml_is_refused(other: Path, old: str, new: str, words: str) -> None:
    yaml = other / "flow.yaml"
    assert old in yaml.read_text()
    yaml.write_text(yaml.read_text().replace(old, new))
    refused(TINY, other, words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("depth: 3", "depth: 4", "missing tensor decoder.estimator.blocks.3"),
        ("mlp_ratio: 4.0", "mlp_ratio: 4.1", "mlp_ratio = 4.1; 48 times it must be a positive integer"),
        ("key_bias: True", "key_bias: False", "flow.encoder.key_bias = False; only True is implemented"),
    ],
)
def test_other_sizes_are_refused(other: Path, old: str, new: str, words: str) -> None:
    yaml = other / "flow.yaml"
    yaml.write_text(yaml.read_text().replace(old, new))
    with pytest.raises(ModelError, match=words):
        load_backend("torch", EngineSettings(model=TINY, decoder_model=other))


@pytest.mark.parametrize(
    ("source", "file", "words"),
    [
        (TINY, "flow.pt", "flow.pt: its tensors are those of CosyVoice2; the directory's yaml is of Step-Audio2"),
        (TINY3, "hift.pt", "hift.pt: its tensors are those of CosyVoice3; the directory's yaml is of Step-Audio2"),
    ],
)
def test_weights_of_another_model_are_refused(other: Path, source: Path, file: str, words: str) -> None:
    shutil.copy(source / file, other / file)
    with pytest.raises(ModelError, match=words):
        load_backend("torch", EngineSettings(model=TINY, decoder_model=other))


def test_its_flow_in_a_directory_of_a_generation_is_refused(tmp_path: Path) -> None:
    for path in TINY.iterdir():
        (tmp_path / path.name).symlink_to(path if path.name != "flow.pt" else DECODER / "flow.pt")
    with pytest.raises(ModelError, match=r"flow.pt: its tensors are those of Step-Audio2; .* is of CosyVoice2"):
        load_backend("torch", EngineSettings(model=tmp_path))


def test_the_paged_engine_is_refused_by_name_where_it_has_no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that `auto` takes the readable engine."""
    assert paged_network(ModelDirectory(DECODER)) is networks.STEP_DIT
    monkeypatch.setattr(networks, "NETWORKS", {"conformer-unet": networks.UNET})
    with pytest.raises(Unsuitable, match=r"Step-Audio2, is conformer-dit; .*GPU_ENGINE=readable does without"):
        paged_network(ModelDirectory(DECODER))


def test_a_first_hop_that_prompts_cannot_be_cut_for_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"Step-Audio2 decodes a prompt as one block, .*leave it at 0"):
        load_backend("torch", EngineSettings(model=TINY, decoder_model=DECODER, first_hop_tokens=20))
