"""The modes make the reference's sequences, StreamingSynthesize in token mode those of its text
streaming: a request through the public door, the speech-token service on the reference's weights,
and a decoder that sounds each token as its number.
"""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyserve.generations.reading import generation_of
from cosyserve.model_directory import ModelDirectory
from cosyserve.v1 import profile_pb2, synthesis_pb2, synthesis_pb2_grpc, voice_pb2
from services.llm.backends import torch_backend
from services.llm.generation import requested_script
from services.llm.generation.sampling import GreedyChooser
from services.llm.servicer import LlmServicer
from services.llm.settings import LlmSettings
from tests.pipeline.calling import audio_of
from tests.stacks.calls import all_of
from tests.stacks.in_process import orchestrated, serving
from tests.stacks.scripted_stages import LOUDNESS, Script, prompted_voice, stage
from tests.stacks.up_process import TINY, TINY3
from tests.stacks.whole_stack import whole_stack
from tools.verify.llm import _UntilLimit

Request = synthesis_pb2.StreamingSynthesizeRequest


class Golden:
    """What the reference made with the reduced model of a generation."""

    def __init__(self, bundle: Path) -> None:
        self.bundle = bundle
        with np.load(bundle / "llm.npz") as archive:
            names = [name for name in archive.files if name.startswith(("greedy_tokens", "bistream"))]
            names += [name for name in archive.files if name.endswith("_ids")]
            self._lists: dict[str, list[int]] = {name: archive[name].reshape(-1).tolist() for name in names}

    def __getitem__(self, name: str) -> list[int]:
        return self._lists[name]

    @property
    def system(self) -> list[int]:
        """Ids of the system part, none for a generation that has none."""
        return self._lists.get("system_text_ids", [])


@pytest.fixture(scope="module", params=[TINY, TINY3], ids=["tiny", "tiny3"])
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(request.param)


@contextlib.asynccontextmanager
async def door(golden: Golden, script: Script, **door_settings: Any) -> AsyncIterator[Any]:
    backend = torch_backend.TorchBackend.load(
        LlmSettings(listen="127.0.0.1:0", model=golden.bundle, backend="torch", device="cpu")
    )

    async with (
        stage("frontend", script) as frontend,
        serving("llm", LlmServicer(backend)) as llm,
        stage("token2wav", script) as token2wav,
        orchestrated({"frontend": [frontend], "llm": [llm], "token2wav": [token2wav]}, **door_settings) as (_, channel),
    ):
        yield synthesis_pb2_grpc.SynthesisServiceStub(channel)
    await backend.close()


@pytest.mark.parametrize(
    ("fields", "reference"),
    [
        ({"prompt_mode": synthesis_pb2.PROMPT_MODE_ZERO_SHOT}, "greedy_tokens"),
        ({"prompt_mode": synthesis_pb2.PROMPT_MODE_CROSS_LINGUAL}, "greedy_tokens_no_prompt"),
        ({"prompt_mode": synthesis_pb2.PROMPT_MODE_SFT}, "greedy_tokens_no_prompt"),
        # What the reference calls a prompt of text alone is what instruct2 hands over, with the
        # instruction for the text.
        ({"instruction": "as the script says"}, "greedy_tokens_text_prompt_only"),
    ],
)
async def test_each_mode_makes_the_reference_sequence(
    golden: Golden, fields: dict[str, Any], reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requested_script, "RepetitionAwareChooser", lambda sampling, draw: GreedyChooser())
    instruction = golden.system or golden["prompt_text_ids"]
    script = Script(letters=tuple(golden["text_ids"]), instruction=tuple(instruction), system_text_ids=golden.system)
    transcript = [] if "instruction" in fields else golden["prompt_text_ids"]
    script.voice.CopyFrom(prompted_voice("anna", transcript, golden["prompt_speech_ids"]))
    request = synthesis_pb2.SynthesizeRequest(text="word", profile=profile_pb2.PROFILE_UPSTREAM, **fields)
    async with door(golden, script, guards=False) as stub:
        audio = audio_of(await all_of(stub.Synthesize(request, timeout=60)))
    tokens = (np.frombuffer(audio, "<i2")[::960] - LOUDNESS).tolist()
    # The reference has a system part without a transcript in the text, for which it speaks longer.
    longest = 20 * len(golden["text_ids"])
    assert tokens == golden[reference][:longest]
    assert len(tokens) > 100


async def test_an_instruction_stands_in_front_of_the_text_and_ends_as_the_model_was_taught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through the real frontend with the published tokenizer's rules, to what the engine is
    given.
    """
    async with whole_stack(TINY, guards=False) as stack:
        given: list[Any] = []
        generate = stack.llm.generate

        def watched(generation: Any) -> Any:
            given.append(generation)
            return generate(generation)

        monkeypatch.setattr(stack.llm, "generate", watched)
        plain, *changed = [
            await stack.client.synthesize("word", voice="zs_a", seed=1, instruction=instruction).read()
            for instruction in ("", "Say it slowly.", " Say it slowly.<|endofprompt|> ")
        ]
        assert plain not in changed
    zero_shot, *instructed = given
    assert zero_shot.prompt.text_ids
    assert zero_shot.prompt.speech_tokens
    for generation in instructed:
        assert (generation.text, generation.prompt.speech_tokens) == (tuple(zero_shot.text), ())
        # Letters are bytes to this tokenizer; 259 is its <|endofprompt|>.
        assert generation.prompt.text_ids.index(259) == len(generation.prompt.text_ids) - 1
    assert len({generation.prompt.text_ids for generation in instructed}) == 1


async def spoken_tokens(golden: Golden, case: str, profile: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    monkeypatch.setattr(
        requested_script,
        "RepetitionAwareChooser",
        lambda sampling, draw: _UntilLimit(
            generation_of(ModelDirectory(golden.bundle)).speech, golden["bistream_limit"][0]
        ),
    )
    script = Script(letters=tuple(golden["bistream_text_ids"]), system_text_ids=golden.system)
    script.voice.CopyFrom(voice_pb2.Voice(id="anna", content_hash="h", speaker_embedding=bytes(4 * 192)))
    if case == "with_prompt":
        script.voice.prompt_text_ids.extend(golden["prompt_text_ids"])
        script.voice.prompt_speech_tokens.extend(golden["bistream_prompt_speech_ids"])
    setup = synthesis_pb2.StreamingSynthesizeSetup(
        mode=synthesis_pb2.StreamingSynthesizeSetup.MODE_TOKENS,
        request=synthesis_pb2.SynthesizeRequest(profile=profile),  # type: ignore[arg-type]
    )

    async def messages() -> AsyncIterator[Request]:
        yield Request(setup=setup)
        for _ in script.letters:
            yield Request(text="x")

    async with door(golden, script) as stub:
        audio = audio_of(await all_of(stub.StreamingSynthesize(messages(), timeout=60)))
    return [int(value) - LOUDNESS for value in np.frombuffer(audio, "<i2")[::960]]


@pytest.mark.parametrize("case", ["with_prompt", "no_prompt"])
async def test_profile_upstream_makes_the_reference_sequences(
    golden: Golden, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        await spoken_tokens(golden, case, profile_pb2.PROFILE_UPSTREAM, monkeypatch)
        == golden[f"bistream_tokens_{case}"]
    )


async def test_the_served_profile_differs_only_by_the_doubled_feeding(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reference feeds the last speech token twice behind the end of the text. With the prompt
    only one token follows there, and it is the same. Behind a system part without a prompt it
    decides from no text at first, which is another sentence from its first block on."""
    with_prompt = await spoken_tokens(golden, "with_prompt", profile_pb2.PROFILE_CONTINUOUS, monkeypatch)
    assert with_prompt == golden["bistream_tokens_with_prompt"]
    without = await spoken_tokens(golden, "no_prompt", profile_pb2.PROFILE_CONTINUOUS, monkeypatch)
    assert without != golden["bistream_tokens_no_prompt"]
    assert (without[:45] == golden["bistream_tokens_no_prompt"][:45]) is not bool(golden.system)
