"""A made-up third generation is served from its description and its own network files: no service
has to be changed for it.
"""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cosyserve.errors import ModelError
from cosyserve.generations.cosyvoice3 import COSYVOICE3
from cosyserve.generations.generation import SilentTokens, TextPrompt
from cosyserve.generations.reading import GENERATIONS, generation_of
from cosyserve.model_directory import ModelDirectory
from services.frontend.loading import read_tokenizer
from services.frontend.voices.system_part import SystemPart
from services.llm.__main__ import _silent
from services.llm.engine.weights import ServedModel
from services.llm.generation.request import Profile, Prompt
from services.llm.generation.sampling import GreedyChooser
from services.llm.generation.script import WholeText
from services.llm.settings import LlmSettings
from services.token2wav.decoders.backend import EngineSettings
from services.token2wav.flow import loading as flow_loading
from services.token2wav.loading import load_backend
from services.token2wav.vocoder import loading as vocoder_loading
from services.token2wav.vocoder.vocoder import Vocoder
from tests.stacks.up_process import TINY3

CPU = torch.device("cpu")
THIRD = replace(
    COSYVOICE3,
    name="cosyvoice4",
    title="CosyVoice4",
    yaml_names=("cosyvoice4.yaml",),
    classes=(("llm", "FourthLM"),),
    # Start and task change places, and the end and the fill.
    speech=replace(COSYVOICE3.speech, start=6563, task=6561, end=6564, fill=6562),
    prompt=TextPrompt(end_mark="<|endofsystem|>", required=True, system="Speak."),
    text_marks=(*COSYVOICE3.text_marks, "[fourth]"),
    silent=SilentTokens(ids=frozenset({7}), longest_run=2),
    flow_network="fourth-flow",
    vocoder_network="fourth-vocoder",
)


@pytest.fixture
def third(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelDirectory:
    """Its model directory, with the weights of the second one."""
    for path in TINY3.iterdir():
        if path.suffix == ".pt" or path.is_dir():
            (tmp_path / path.name).symlink_to(path)
    text = (TINY3 / "cosyvoice3.yaml").read_text()
    (tmp_path / "cosyvoice4.yaml").write_text(text.replace(".CosyVoice3LM\n", ".FourthLM\n"))
    monkeypatch.setattr(generation_of, "__defaults__", ((*GENERATIONS, THIRD),))
    return ModelDirectory(tmp_path)


def load_fourth(directory: ModelDirectory, device: torch.device, hold_back_frames: int | None) -> Vocoder:
    return vocoder_loading.load_vocoder(ModelDirectory(TINY3), device, hold_back_frames)


def test_the_frontend_has_its_marks_and_its_system_part(third: ModelDirectory) -> None:
    tokenizer = read_tokenizer(third)
    mark = tokenizer.id_of("<|endofsystem|>")
    assert tokenizer.encode("[fourth]") == [len(tokenizer) - 1]
    assert SystemPart(THIRD, tokenizer).ids == (*tokenizer.encode("Speak."), mark)


def test_the_speech_token_model_has_its_special_ids(third: ModelDirectory) -> None:
    served = ServedModel.read(third.path)
    config, model = served.config, served.load(CPU)
    assert config.end_of_prompt == read_tokenizer(third).id_of("<|endofsystem|>")
    start, task = model.tables[0]
    assert torch.equal(start, model.tables[2][6563])
    assert torch.equal(task, model.tables[2][6561])
    script = WholeText(config, Prompt(), (1, 2), Profile.CONTINUOUS, GreedyChooser())
    assert set(range(6561, 6761)) - set(script.rules.masked) == {6564}
    assert _silent(LlmSettings(listen="127.0.0.1:0", model=third.path)) == THIRD.silent


def test_token2wav_needs_its_networks_and_nothing_else(third: ModelDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = EngineSettings(model=third.path)
    with pytest.raises(ModelError, match="network 'fourth-flow' is not known"):
        load_backend("torch", settings)
    monkeypatch.setitem(flow_loading.NETWORKS, "fourth-flow", flow_loading.NETWORKS["dit"])
    with pytest.raises(ModelError, match="network fourth-vocoder is not known"):
        load_backend("torch", settings)
    monkeypatch.setitem(vocoder_loading.NETWORKS, "fourth-vocoder", load_fourth)
    assert set(load_backend("torch", settings).decoders)
