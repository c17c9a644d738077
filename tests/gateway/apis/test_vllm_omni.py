"""WS /v1/audio/speech/stream as vLLM-Omni's clients speak it: utterances one after the other, audio
in each of its forms, times of words, refusals that do not end the conversation.
"""

import asyncio
import base64
import io
import itertools
import json
import wave
from collections.abc import AsyncIterator
from typing import Any

import av
import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import ClientConnection, connect

from cosyserve.client import AsyncClient, Speech
from cosyserve.client.types import WordTime
from tests.gateway.conversing import send, spoken, until_closed
from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hang, hold_back, hook
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack, expected_audio

PATH = "/v1/audio/speech/stream"
CONFIG = {"type": "session.config", "seed": 7, "response_format": "pcm"}
STREAMED = {**CONFIG, "stream_audio": True}
DONE = {"type": "input.done"}
CLOSE = {"type": "session.close"}
Messages = list[dict[str, Any]]


@pytest.fixture
async def ws(served: Gateway) -> AsyncIterator[ClientConnection]:
    async with connect(f"ws://{served.address}{PATH}", max_size=1 << 24) as ws:
        yield ws


def text(words: str) -> dict[str, Any]:
    return {"type": "input.text", "text": words}


async def answers(ws: ClientConnection, *until: str) -> tuple[Messages, list[bytes]]:
    """Messages and binary ones up to the first of a kind, by default the end of the utterance."""
    messages: Messages = []
    audio: list[bytes] = []
    while not messages or messages[-1]["type"] not in (until or ("session.done",)):
        received = await ws.recv()
        if isinstance(received, bytes):
            audio.append(received)
        else:
            messages.append(json.loads(received))
    return messages, audio


def kinds(messages: Messages) -> list[str]:
    return [message["type"] for message in messages]


async def by_grpc(running: Stack, words: str = TEXT) -> bytes:
    async with AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
        return await client.synthesize(words, seed=7).read()


WHOLE = ["audio.start", "audio.done", "session.done"]


@pytest.mark.parametrize("granularity", ["none", "sentence", "clause", None])
@pytest.mark.parametrize("cut", [1, 5, 1_000])
async def test_samples_are_those_of_grpc(
    ws: ClientConnection, running: Stack, granularity: str | None, cut: int
) -> None:
    pieces = [TEXT[at : at + cut] for at in range(0, len(TEXT), cut)]
    await send(ws, {**STREAMED, "split_granularity": granularity}, *map(text, pieces), DONE)
    messages, audio = await answers(ws)
    assert b"".join(audio) == await by_grpc(running)
    assert kinds(messages) == WHOLE
    size = len(b"".join(audio))
    start = {"utterance_index": 0, "sentence_index": 0, "format": "pcm", "sample_rate": 24_000, "channels": 1}
    assert messages[0] == {"type": "audio.start", "sentence_text": messages[0]["sentence_text"], **start}
    assert TEXT.startswith(messages[0]["sentence_text"])
    if granularity == "none":
        assert messages[0]["sentence_text"] == TEXT
    done = {"utterance_index": 0, "sentence_index": 0, "total_bytes": size, "error": False}
    assert messages[1:] == [
        {"type": "audio.done", **done},
        {"type": "session.done", "utterance_index": 0, "total_sentences": 1},
    ]


async def test_without_streaming_one_message_is_a_whole_file(ws: ClientConnection, running: Stack) -> None:
    await send(ws, {**CONFIG, "response_format": "wav"}, text(TEXT), DONE)
    messages, audio = await answers(ws)
    expected = await by_grpc(running)
    assert kinds(messages) == WHOLE
    (file,) = audio
    with wave.open(io.BytesIO(file)) as read:
        assert read.getframerate() == 24_000
        assert read.readframes(read.getnframes()) == expected
    assert messages[1]["total_bytes"] == len(file)


@pytest.mark.parametrize("file_format", ["mp3", "opus", "aac", "flac"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_every_format_is_a_file(ws: ClientConnection, file_format: str, streamed: bool) -> None:
    await send(ws, {**CONFIG, "response_format": file_format, "stream_audio": streamed}, text(TEXT), DONE)
    messages, audio = await answers(ws)
    assert messages[0]["format"] == file_format
    with av.open(io.BytesIO(b"".join(audio))) as container:
        assert sum(frame.samples for frame in container.decode(audio=0)) > 0


async def test_audio_begins_before_the_text_is_over(ws: ClientConnection, running: Stack) -> None:
    await send(ws, STREAMED, text("one another "))
    messages, _ = await answers(ws, "audio.start")
    assert messages[0]["sentence_text"] == "one another "
    assert isinstance(await ws.recv(), bytes)
    await send(ws, text("third"), DONE)
    messages, _ = await answers(ws)
    assert messages[-2]["total_bytes"] == len(await by_grpc(running, "one another third"))


async def test_held_text_is_not_spoken_before_its_end(ws: ClientConnection, running: Stack) -> None:
    await send(ws, {**STREAMED, "split_granularity": "none"}, text("one another "), text("third "))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ws.recv(), 0.5)
    assert running.scripts["frontend"][0].calls == []
    await send(ws, DONE)
    assert (await answers(ws))[0][0]["sentence_text"] == "one another third "


async def test_times_of_words_come_behind_the_audio(
    ws: ClientConnection, running: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [WordTime("one", 0.04, 0.2, 0), WordTime("another", 0.3, 0.5124, 1)]
    begun = Speech.__init__

    def with_words(self: Speech, *arguments: Any, **more: Any) -> None:
        begun(self, *arguments, **more)
        self.words = list(words)

    monkeypatch.setattr(Speech, "__init__", with_words)
    await send(ws, {**STREAMED, "word_timestamps": True}, text(TEXT), DONE)
    messages, audio = await answers(ws)
    expected = await by_grpc(running)
    assert audio == [], "audio is in the messages"
    start, *chunks, last, done, _ = messages
    assert start["word_timestamps"] is True
    assert b"".join(base64.b64decode(chunk["audio_b64"]) for chunk in chunks) == expected
    assert [chunk["chunk_id"] for chunk in [*chunks, last]] == list(range(len(chunks) + 1))
    assert {chunk["timestamps"] for chunk in chunks} == {None}
    assert chunks[0]["chunk_start_ms"] == 0
    assert all(one["chunk_end_ms"] == other["chunk_start_ms"] for one, other in itertools.pairwise(chunks))
    assert (last["audio_b64"], last["chunk_end_ms"]) == ("", round(len(expected) / 48))
    assert last["timestamps"] == [
        {"word": "one", "start_ms": 40, "end_ms": 200},
        {"word": "another", "start_ms": 300, "end_ms": 512},
    ]
    assert done["total_bytes"] == len(expected)


async def test_a_model_without_alignment_has_no_times(ws: ClientConnection) -> None:
    await send(ws, {**STREAMED, "word_timestamps": True}, text(TEXT), DONE)
    messages, _ = await answers(ws)
    assert messages[-3]["timestamps"] is None


async def test_utterances_follow_one_another_and_the_configuration_stays(ws: ClientConnection, running: Stack) -> None:
    await send(ws, STREAMED)
    for number in range(3):
        await send(ws, text(TEXT), DONE)
        messages, audio = await answers(ws)
        assert {message["utterance_index"] for message in messages} == {number}
        assert b"".join(audio) == await by_grpc(running)
    await send(ws, {**CONFIG, "response_format": "wav"}, text("one"), DONE)
    messages, audio = await answers(ws)
    assert audio[0].startswith(b"RIFF")


async def test_utterances_may_be_sent_ahead(ws: ClientConnection) -> None:
    await send(ws, STREAMED, text("one"), DONE, text("another"), DONE, CONFIG, text("third"), DONE, CLOSE)
    for words in ("one", "another", "third"):
        assert spoken(b"".join((await answers(ws))[1])) == expected_audio(words)
    assert await until_closed(ws) == (1000, [])


@pytest.mark.parametrize("granularity", ["none", "sentence"])
async def test_an_utterance_without_text_is_over_at_once(
    ws: ClientConnection, running: Stack, granularity: str
) -> None:
    config = {**STREAMED, "split_granularity": granularity}
    await send(ws, config, DONE, text(""), text("  "), DONE, config, text("one"), DONE)
    for number in range(2):
        done = {"type": "session.done", "utterance_index": number, "total_sentences": 0}
        assert (await answers(ws))[0] == [done]
    assert spoken(b"".join((await answers(ws))[1])) == expected_audio("one")
    assert len(running.scripts["frontend"][0].text_setups) == 1


async def test_a_recording_and_other_fields_reach_the_model(ws: ClientConnection, running: Stack) -> None:
    recording = base64.b64encode(bytes(range(1, 61))).decode()
    config = {**STREAMED, "ref_audio": f"data:audio/wav;base64,{recording}", "ref_text": "what is said"}
    await send(ws, {**config, "language": "English", "max_new_tokens": 7, "unknown": 1, "voice": None})
    await send(ws, text(TEXT), DONE)
    assert kinds((await answers(ws))[0]) == WHOLE
    script = running.scripts["frontend"][0]
    assert [(prompt.audio, prompt.transcript) for prompt in script.recordings] == [
        (bytes(range(1, 61)), "what is said")
    ]
    assert script.text_setups[0].language_code == "en"


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"response_format": "ogg"}, "response_format"),
        ({"speed": 4}, "speed"),
        ({"speed": "fast"}, "speed"),
        ({"seed": -1}, "seed"),
        ({"stream_audio": "perhaps"}, "stream_audio"),
        ({"split_granularity": "word"}, "'none', 'sentence' or 'clause'"),
        ({"task_type": "VoiceDesign"}, "task_type"),
        ({"speaker_embedding": [0.5]}, "speaker_embedding"),
        ({"word_timestamps": True, "stream_audio": False}, "stream_audio=true"),
        ({"word_timestamps": True, "response_format": "wav"}, "response_format='pcm'"),
        ({"ref_audio": "https://example.org/x.wav"}, "ref_audio is an address"),
        ({"ref_audio": "data:audio/wav;base64,!"}, "no base64"),
        ({"ref_audio": "AAAA", "voice": "anna"}, "one of them"),
    ],
)
async def test_a_configuration_that_is_wrong_is_refused(
    ws: ClientConnection, served: Gateway, running: Stack, wrong: dict[str, Any], words: str
) -> None:
    """The first one ends the connection, a later one leaves the one before in force."""
    await send(ws, {**STREAMED, **wrong})
    (error,), _ = await answers(ws, "error")
    assert words in error["message"]
    assert await until_closed(ws) == (1008, [])
    async with connect(f"ws://{served.address}{PATH}") as other:
        await send(other, STREAMED, {**STREAMED, **wrong}, text("one"), DONE)
        messages, audio = await answers(other)
        assert kinds(messages) == ["error", *WHOLE]
        assert spoken(b"".join(audio)) == expected_audio("one")
    await all_idle(running)


ODD: list[tuple[Any, str]] = [
    ("{", "not JSON"),
    ("[" * 90_000, "nests arrays"),
    ("[]", "no JSON object"),
    ('{"type": "input.text", "text": "\\ud800"}', "surrogate"),
    (b"\0", "binary"),
    ("x" * 100_001, "100000"),
    ({"text": "one"}, "type"),
    ({"type": 7}, "type"),
    ({"type": "input.txt"}, "session.config, input.text, input.done, session.close"),
    ({"type": "input.text", "text": 7}, "no string but int"),
]


async def test_what_cannot_be_understood_does_not_end_the_conversation(ws: ClientConnection) -> None:
    """Neither between utterances nor within one."""
    for message, words in ODD:
        await send(ws, STREAMED, message)
        (error,), _ = await answers(ws, "error")
        assert words in error["message"]
        await send(ws, text("one "), message, text("another"), DONE)
        messages, audio = await answers(ws)
        assert sorted(kinds(messages)) == sorted(["error", *WHOLE])
        assert spoken(b"".join(audio)) == expected_audio("one another")


@pytest.mark.parametrize("message", [text("one"), DONE, "{", b"\0"])
async def test_a_message_before_the_configuration_ends_the_connection(ws: ClientConnection, message: Any) -> None:
    await send(ws, message)
    assert (await answers(ws, "error"))[0]
    assert await until_closed(ws) == (1008, [])


async def test_a_configuration_within_an_utterance_is_refused(ws: ClientConnection) -> None:
    await send(ws, STREAMED, text("one "), {**STREAMED, "voice": "nobody"}, text("another"), DONE)
    messages, audio = await answers(ws)
    assert sorted(kinds(messages)) == sorted(["error", *WHOLE])
    assert spoken(b"".join(audio)) == expected_audio("one another")
    held = {**STREAMED, "split_granularity": "none"}
    await send(ws, held, text("one "), held, text("another"), DONE)
    messages, audio = await answers(ws)
    assert kinds(messages) == ["error", *WHOLE]
    assert spoken(b"".join(audio)) == expected_audio("one another")


@pytest.mark.parametrize("granularity", ["none", "sentence"])
async def test_an_utterance_that_is_refused_is_reported_and_the_next_is_spoken(
    ws: ClientConnection, granularity: str
) -> None:
    config = {**STREAMED, "split_granularity": granularity}
    await send(ws, {**config, "voice": "nobody"}, text("one "), text("another "), text("third"), DONE)
    messages, _ = await answers(ws)
    assert kinds(messages) == ["error", *WHOLE]
    assert "nobody" in messages[0]["message"]
    assert messages[0]["code"] == "not_found"
    assert "action" not in messages[0]
    assert messages[2]["error"] is True
    await send(ws, config, text("one"), DONE)
    assert spoken(b"".join((await answers(ws))[1])) == expected_audio("one")


async def test_a_failure_in_the_middle_tells_to_discard_what_came(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", 20 * 960))
    await send(ws, STREAMED, text(TEXT))
    messages, audio = await answers(ws, "audio.done")
    assert kinds(messages) == ["audio.start", "error", "audio.done"]
    assert audio
    assert (messages[1]["partial_audio"], messages[1]["action"]) == (True, "discard")
    assert messages[2]["error"] is True
    await send(ws, text(" and more "), STREAMED, DONE, text("one"), DONE)
    messages, _ = await answers(ws)
    assert kinds(messages) == ["error", "session.done"], "a configuration waits for the end of the utterance"
    assert messages[1]["total_sentences"] == 1
    assert spoken(b"".join((await answers(ws))[1])) == expected_audio("one")


@pytest.mark.start(max_streams=1)
async def test_one_too_many_may_come_back(ws: ClientConnection, served: Gateway, running: Stack) -> None:
    gate = hold_back(running)
    await send(ws, STREAMED, text("one "))
    await busy(running, "token2wav")
    async with connect(f"ws://{served.address}{PATH}") as other:
        await send(other, STREAMED, text("one"), DONE)
        messages, _ = await answers(other)
        assert (messages[0]["code"], messages[0]["retry_after_milliseconds"] >= 200) == ("overloaded", True)
        gate.set()
        await send(ws, DONE)
        await answers(ws)
        await send(other, text("one"), DONE)
        assert spoken(b"".join((await answers(other))[1])) == expected_audio("one")


@pytest.mark.parametrize("how", ["hang up", "session.close"])
@pytest.mark.parametrize("ended", [False, True])
async def test_hanging_up_leaves_every_stage_idle(ws: ClientConnection, running: Stack, how: str, ended: bool) -> None:
    hold_back(running)
    await send(ws, STREAMED, text(f"{TEXT} "), *([DONE] if ended else []))
    await busy(running, "token2wav")
    if how == "session.close" and not ended:
        await send(ws, CLOSE)
    else:
        await ws.close()
    await all_idle(running)


async def test_hanging_up_with_more_sent_ahead_leaves_every_stage_idle(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", hang)
    await send(ws, CONFIG, text(TEXT), DONE, *[text("more")] * 50)
    await busy(running, "token2wav")
    ws.transport.abort()
    await all_idle(running)


@pytest.mark.parametrize(("granularity", "letter"), [("none", "x"), ("sentence", " ")])
async def test_more_text_than_is_held_is_refused(ws: ClientConnection, granularity: str, letter: str) -> None:
    config = {**STREAMED, "split_granularity": granularity}
    await send(ws, config, text(letter * 20_000), text(letter), text(letter), DONE)
    messages, _ = await answers(ws)
    assert kinds(messages) == ["error", "session.done"]
    assert "allowed are 1 to 20000" in messages[0]["message"]
    await send(ws, text("one"), DONE)
    assert spoken(b"".join((await answers(ws))[1])) == expected_audio("one")


@pytest.mark.start(settings={"websocket_idle_seconds": 0.3})
async def test_a_connection_without_messages_is_closed(ws: ClientConnection) -> None:
    await send(ws, STREAMED)
    (error,), _ = await answers(ws, "error")
    assert "nothing was spoken for 0.3 s" in error["message"]
    assert await until_closed(ws) == (1008, [])


STEPS = [
    STREAMED,
    CONFIG,
    {**STREAMED, "voice": "nobody"},
    text("one "),
    text("another"),
    text(""),
    DONE,
    "{",
    {"type": "x"},
]


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(STEPS), max_size=12))
async def test_any_order_of_messages_has_an_answer(served: Gateway, running: Stack, order: list[Any]) -> None:
    """Each `input.done` behind a configuration is answered, and the conversation can go on."""
    async with connect(f"ws://{served.address}{PATH}") as ws:
        await send(ws, STREAMED, *order, DONE)
        for number in range(1 + order.count(DONE)):
            messages, _ = await answers(ws)
            assert messages[-1]["utterance_index"] == number
            assert kinds(messages).count("audio.start") == kinds(messages).count("audio.done") <= 1
        await send(ws, STREAMED, text("third"), DONE)
        assert spoken(b"".join((await answers(ws))[1])) == expected_audio("third")
        await all_idle(running)
