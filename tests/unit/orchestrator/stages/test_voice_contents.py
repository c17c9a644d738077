"""What is kept of voices that were spoken: their content, so that the frontend need not send it
again, and never longer than it is that of the voice.
"""

import pytest

from cosyserve.errors import InternalFault
from cosyserve.v1 import frontend_pb2 as pb
from services.orchestrator.stages.voice_contents import VoiceContents
from tests.stacks.scripted_stages import prompted_voice


def shown(name: str, tokens: list[int]) -> pb.GetVoiceResponse:
    return pb.GetVoiceResponse(voice=prompted_voice(name, [1], tokens), system_text_ids=[7])


def left_out(name: str) -> pb.GetVoiceResponse:
    """The answer to one who has its content, of a model with another system part."""
    answer = pb.GetVoiceResponse(content_known=True, system_text_ids=[8])
    answer.voice.id, answer.voice.content_hash = name, f"hash of {name}"
    return answer


async def test_a_content_is_named_to_the_frontend_and_taken_from_here() -> None:
    contents = VoiceContents(1 << 20)
    first = contents.question("", None)
    assert not first.request.known_content_hash
    assert not first.request.HasField("tenant")
    whole = contents.voice(first, shown("anna", [2, 3]))
    again = contents.question("", None)
    assert again.request.known_content_hash == "hash of anna"
    voice = contents.voice(again, left_out("anna"))
    assert (voice.prompt_speech_tokens, voice.prompt_mel) == (whole.prompt_speech_tokens, whole.prompt_mel)
    assert voice.system_text_ids == (8,), "what is no part of the content is that of the answer"


async def test_a_voice_that_was_made_again_has_its_new_content() -> None:
    contents = VoiceContents(1 << 20)
    contents.voice(contents.question("anna", None), shown("anna", [2, 3]))
    question = contents.question("anna", None)
    assert contents.voice(question, shown("anna", [4])).prompt_speech_tokens == (4,)


async def test_each_tenant_asks_for_itself() -> None:
    contents = VoiceContents(1 << 20)
    contents.voice(contents.question("anna", "green"), shown("anna", [2, 3]))
    assert contents.question("anna", "green").request.tenant == "green"
    for tenant in ("blue", "", None):
        assert not contents.question("anna", tenant).request.known_content_hash


async def test_the_least_recently_used_are_dropped() -> None:
    size = 1024 + 2 * 2 * 80 * 4 + 4 * 192 + 40 * 4
    contents = VoiceContents(most_bytes=2 * size)
    for name in ("anna", "bert", "anna", "carl"):
        contents.voice(contents.question(name, None), shown(name, [2, 3]))
    known = {name for name in ("anna", "bert", "carl") if contents.question(name, None).request.known_content_hash}
    assert known == {"anna", "carl"}


async def test_without_room_none_is_kept() -> None:
    contents = VoiceContents(0)
    voice = contents.voice(contents.question("anna", None), shown("anna", [2, 3]))
    assert voice.prompt_speech_tokens == (2, 3)
    assert not contents.question("anna", None).request.known_content_hash


async def test_a_content_that_was_not_named_cannot_be_left_out() -> None:
    contents = VoiceContents(1 << 20)
    with pytest.raises(InternalFault, match="left out the content of a voice that was not named"):
        contents.voice(contents.question("anna", None), left_out("anna"))
    contents.voice(contents.question("anna", None), shown("anna", [2]))
    with pytest.raises(InternalFault):
        contents.voice(contents.question("anna", None), left_out("bert"))


async def test_the_first_answer_counts() -> None:
    question = VoiceContents(1 << 20).question("anna", None)
    question.answered(None)
    question.answered(shown("anna", [2]))
    assert await question.answer() is None


async def test_nothing_is_kept_of_a_voice_that_is_gone() -> None:
    contents = VoiceContents(1 << 20)
    for name, tenant in (("anna", None), ("", "green"), ("anna", "blue"), ("bert", None)):
        contents.voice(contents.question(name, tenant), shown(name or "anna", [2]))
    contents.missing(contents.question("anna", "blue"))
    assert not contents.question("anna", "blue").known
    assert contents.question("anna", None).known
    contents.deleted("anna")
    assert not contents.question("anna", None).known
    assert not contents.question("", "green").known
    assert contents.question("bert", None).known
