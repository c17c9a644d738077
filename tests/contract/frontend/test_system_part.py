"""The frontend of a CosyVoice3 directory over real gRPC: the system part goes with every voice and
every instruction, and is not spoken; that of CosyVoice2 hands out none.
"""

from typing import Any

import grpc
import numpy as np
import pytest

from cosyserve.v1 import frontend_pb2 as pb
from tests.contract.frontend.frontend_calls import analyze
from tests.stacks.calls import refused
from tests.stacks.up_process import TINY

TINY3 = TINY.parent / "tiny3"
SYSTEM = [*b"You are a helpful assistant.", 259]


@pytest.mark.start(model=TINY3, default_voice="zs_a")
async def test_the_system_part_goes_with_voices_and_instructions(stub: Any) -> None:
    recorded = np.load(TINY3 / "llm.npz")["prompt_text_ids"][0].tolist()
    for name, ids in (("zs_a", recorded), ("spk_a", [])):
        response = await stub.GetVoice(pb.GetVoiceRequest(id=name))
        assert (list(response.system_text_ids), list(response.voice.prompt_text_ids)) == (SYSTEM, ids)
    response = await stub.ReadInstruction(pb.ReadInstructionRequest(instruction="请用广东话表达。"))
    assert list(response.token_ids) == [*SYSTEM[:-1], *" 请用广东话表达。".encode(), SYSTEM[-1]]
    status, message = await refused(stub.ReadInstruction(pb.ReadInstructionRequest(instruction="x <|nonsense|>")))
    assert (status, message) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "instruction holds <|nonsense|>, which is no special token of this model",
    )


@pytest.mark.start(model=TINY3, default_voice="zs_a")
async def test_a_system_part_in_the_text_is_not_spoken(stub: Any) -> None:
    (response,) = await analyze(stub, "You are a helpful assistant.<|endofprompt|>收到[breath]好友。")
    assert response.sentence.text == "收到[breath]好友。"
    (response,) = await analyze(stub, "a gif", pronunciations={"gif": "/JH IH1 F/"})
    assert response.sentence.text == "a [JH][IH1][F]."


@pytest.mark.start(default_voice="zs_a")
async def test_cosyvoice2_needs_none(stub: Any) -> None:
    assert not (await stub.GetVoice(pb.GetVoiceRequest(id="zs_a"))).system_text_ids
