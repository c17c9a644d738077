"""The modes make the reference's sequences: a request through the public door, the speech-token
service on the reference's weights, and a decoder that sounds each token as its number."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cosyserve.v1 import profile_pb2, synthesis_pb2
from services.llm.backends import torch_backend
from services.llm.generation.sampling import GreedyChooser
from tests.golden.test_modes_are_the_reference import TINY, door
from tests.stacks.scripted_stages import LOUDNESS, Script, prompted_voice
from tests.stacks.whole_stack import whole_stack


@pytest.fixture(scope="module")
def golden() -> dict[str, list[int]]:
    with np.load(TINY / "llm.npz") as archive:
        names = [name for name in archive.files if name.startswith("greedy_tokens") or name.endswith("_ids")]
        return {name: archive[name].reshape(-1).tolist() for name in names}


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
    golden: dict[str, list[int]], fields: dict[str, Any], reference: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_backend, "RepetitionAwareChooser", lambda sampling, draw: GreedyChooser())
    script = Script(letters=tuple(golden["text_ids"]), instruction=tuple(golden["prompt_text_ids"]))
    transcript = [] if "instruction" in fields else golden["prompt_text_ids"]
    script.voice.CopyFrom(prompted_voice("anna", transcript, golden["prompt_speech_ids"]))
    request = synthesis_pb2.SynthesizeRequest(text="word", profile=profile_pb2.PROFILE_UPSTREAM, **fields)
    async with door(script, guards=False) as stub:
        audio = b"".join([response.audio async for response in stub.Synthesize(request, timeout=60)])
    tokens = (np.frombuffer(audio, "<i2")[::960] - LOUDNESS).tolist()
    assert len(tokens) > 100
    assert tokens == golden[reference]


async def test_an_instruction_stands_in_front_of_the_text_and_ends_as_the_model_was_taught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Through the real frontend with the published tokenizer's rules, to what the engine is
    given.
    """
    async with whole_stack(Path(TINY), guards=False) as stack:
        given: list[Any] = []
        generate = stack.llm.generate

        def watched(generation: Any) -> Any:
            given.append(generation)
            return generate(generation)

        monkeypatch.setattr(stack.llm, "generate", watched)
        text = "word"
        plain = await stack.client.synthesize(text, voice="zs_a", seed=1).read()
        for instruction in ("Say it slowly.", " Say it slowly.<|endofprompt|> "):
            with_instruction = await stack.client.synthesize(text, voice="zs_a", seed=1, instruction=instruction).read()
            assert with_instruction != plain
    zero_shot, *instructed = given
    assert zero_shot.prompt.text_ids
    assert zero_shot.prompt.speech_tokens
    ids = tuple(zero_shot.text)
    for generation in instructed:
        assert generation.text == ids
        assert generation.prompt.speech_tokens == ()
        # Letters are bytes to this tokenizer; 259 is its <|endofprompt|>.
        assert generation.prompt.text_ids[-1] == 259
        assert 259 not in generation.prompt.text_ids[:-1]
    assert len({generation.prompt.text_ids for generation in instructed}) == 1
