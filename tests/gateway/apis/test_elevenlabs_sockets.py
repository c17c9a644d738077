"""ElevenLabs' WebSockets over real sockets and real gRPC: text in pieces, contexts, alignments,
refusals, callers that hang up, stop reading or fall silent.
"""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from websockets.asyncio.client import ClientConnection, connect

from services.gateway.elevenlabs.sockets.endpoints import MOST_CONTEXTS
from tests.gateway.apis.test_elevenlabs_speech import openai, timed
from tests.gateway.conversing import send, spoken, until_closed
from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hang, hold_back, hook
from tests.stacks.calls import until
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack, expected_audio

SINGLE, MULTI = "stream-input", "multi-stream-input"
START, EOS = {"text": " ", "voice_settings": {"stability": 0.5}}, {"text": ""}
Message = dict[str, Any]


def address(served: Gateway, kind: str, voice: str = "anna", **query: Any) -> str:
    given = "&".join(f"{name}={value}" for name, value in {"output_format": "pcm_24000", "seed": 7, **query}.items())
    return f"ws://{served.address}/v1/text-to-speech/{voice}/{kind}?{given}"


@pytest.fixture
def kind(query: dict[str, Any]) -> str:
    return query.pop("kind", SINGLE)  # type: ignore[no-any-return]


@pytest.fixture
async def ws(served: Gateway, running: Stack, kind: str, query: dict[str, Any]) -> AsyncIterator[ClientConnection]:
    timed(running)
    async with connect(address(served, kind, **query)) as ws:
        yield ws


async def until_final(ws: ClientConnection, *contexts: str) -> list[Message]:
    """Messages up to the last one of each of these contexts, or of the only one."""
    found: list[Message] = []
    left: set[str | None] = {*contexts} or {None}
    while left:
        found.append(json.loads(await ws.recv()))
        if found[-1].get("isFinal"):
            left.remove(found[-1].get("contextId"))
    return found


async def closed(ws: ClientConnection) -> int | None:
    """With which code, after messages that do not matter."""
    return (await until_closed(ws))[0]


def audio(messages: list[Message], context: str | None = None) -> bytes:
    mine = [message for message in messages if message.get("contextId") == context]
    return b"".join(base64.b64decode(message.get("audio") or "") for message in mine)


def characters(messages: list[Message], field: str = "alignment") -> str:
    return "".join("".join(message[field]["chars"]) for message in messages if message.get(field))


def pieces(text: str, cut: int, **fields: Any) -> list[Message]:
    return [{"text": text[at : at + cut], **fields} for at in range(0, len(text), cut)]


@pytest.mark.parametrize("cut", [1, 5, 1_000])
async def test_text_in_pieces_is_the_speech_of_the_whole(ws: ClientConnection, served: Gateway, cut: int) -> None:
    await send(ws, START, *pieces(TEXT, cut, try_trigger_generation=True), EOS)
    messages = await until_final(ws)
    assert await closed(ws) == 1000
    assert audio(messages) == await openai(served)
    assert spoken(audio(messages)) == expected_audio(TEXT)
    assert characters(messages).strip() == characters(messages, "normalizedAlignment").strip() == TEXT
    assert messages[-1] == {"audio": "", "isFinal": True, "alignment": None, "normalizedAlignment": None}


@pytest.mark.parametrize("query", [{"sync_alignment": "false"}, {"sync_alignment": "true"}])
async def test_times_count_from_the_alignment_before_or_from_the_beginning(
    ws: ClientConnection, query: Message
) -> None:
    await send(ws, START, {"text": "one two. Three "}, EOS)
    messages = await until_final(ws)
    clock, starts = 0, []
    for alignment in [message["alignment"] for message in messages if message["alignment"]]:
        times, durations = alignment["charStartTimesMs"], alignment["charDurationsMs"]
        assert len(alignment["chars"]) == len(times) == len(durations)
        assert all(isinstance(value, int) and value >= 0 for value in times + durations)
        starts += [start + (0 if query["sync_alignment"] == "true" else clock) for start in times]
        clock += times[-1] + durations[-1]
    text = characters(messages)
    assert [starts[text.index(word)] for word in ("one", "two", "Three")] == [0, 600, 1_400]
    assert starts == sorted(starts)


@pytest.mark.parametrize("kind", [SINGLE, MULTI])
async def test_audio_arrives_while_text_is_still_being_written(ws: ClientConnection, kind: str) -> None:
    await send(ws, START, {"text": "one two"}, {"text": "", "flush": True})
    heard = b""
    while len(spoken(heard)) < len(expected_audio("one two")):
        heard += base64.b64decode(json.loads(await ws.recv())["audio"])
    await send(ws, {"text": " three "}, EOS if kind == SINGLE else {"close_socket": True})
    if kind == SINGLE:
        assert spoken(heard + audio(await until_final(ws))) == expected_audio("one two three")
    else:
        assert await closed(ws) == 1000


@pytest.mark.start(query={"auto_mode": "true"})
async def test_in_auto_mode_a_sentence_is_spoken_without_a_flush(ws: ClientConnection) -> None:
    await send(ws, {"text": "one."})
    heard = b""
    while len(spoken(heard)) < len(expected_audio("one.")):
        heard += base64.b64decode(json.loads(await ws.recv())["audio"])
    await send(ws, {"text": "two."}, EOS)
    messages = await until_final(ws)
    assert spoken(audio(messages)) == expected_audio("two.")
    assert characters(messages).endswith("two. ")


@pytest.mark.start(query={"mode": "tokens"})
async def test_speech_may_begin_inside_of_a_sentence(ws: ClientConnection) -> None:
    await send(ws, {"text": "on"})
    heard = b""
    while not spoken(heard):
        heard += base64.b64decode(json.loads(await ws.recv())["audio"])
    await send(ws, {"text": "e two"}, EOS)
    assert spoken(heard + audio(await until_final(ws))) == expected_audio("one two")


@pytest.mark.parametrize("query", [{"output_format": name} for name in ("mp3_22050_32", "opus_48000_32", "wav_16000")])
async def test_a_context_is_one_file_of_any_format(ws: ClientConnection, served: Gateway, query: Message) -> None:
    await send(ws, START, {"text": TEXT}, EOS)
    whole = audio(await until_final(ws))
    response = await served.http.post("/v1/text-to-speech/anna", params=query, json={"text": TEXT, "seed": 7})
    assert whole == response.content


@pytest.mark.parametrize(
    ("query", "start", "seed"),
    [
        ({"seed": 5}, {}, 5),
        ({"seed": 5}, {"voice_settings": {"seed": 6}}, 6),
        ({"seed": 5}, {"voice_settings": {"speed": 1.0}, "generation_config": {"seed": 8}}, 8),
        ({}, {"generation_config": {"chunk_length_schedule": [50], "seed": 9}}, 9),
    ],
)
async def test_the_seed_of_the_first_message_goes_before_that_of_the_address(
    ws: ClientConnection, running: Stack, start: Message, seed: int
) -> None:
    await send(ws, {"text": " ", **start}, {"text": "one"}, EOS)
    await until_final(ws)
    assert running.scripts["llm"][0].llm_setups[-1].seed == seed


async def test_an_end_without_text_is_an_end(ws: ClientConnection, running: Stack) -> None:
    await send(ws, START, {"text": "", "flush": True}, EOS)
    assert len(await until_final(ws)) == 1
    assert await closed(ws) == 1000
    assert running.scripts["frontend"][0].calls == []


@pytest.mark.start(query={"kind": MULTI})
async def test_contexts_are_spoken_side_by_side(ws: ClientConnection, served: Gateway) -> None:
    for name, text in (("a", TEXT), ("b", "quite another text")):
        await send(ws, {**START, "context_id": name}, *pieces(text, 7, context_id=name))
    for name in ("b", "a"):
        await send(ws, {"context_id": name, "flush": True}, {"context_id": name, "close_context": True})
    messages = await until_final(ws, "a", "b")
    assert audio(messages, "a") == await openai(served)
    assert spoken(audio(messages, "b")) == expected_audio("quite another text")
    assert all(message["contextId"] == message["context_id"] for message in messages)
    assert characters([message for message in messages if message["contextId"] == "b"]) == "quite another text "


@pytest.mark.start(query={"kind": MULTI})
async def test_a_message_without_a_context_is_of_the_default_one(ws: ClientConnection) -> None:
    await send(ws, START, {"text": "one ", "flush": True}, {"close_context": True})
    assert spoken(audio(await until_final(ws, "default"), "default")) == expected_audio("one")


@pytest.mark.start(query={"kind": MULTI})
async def test_a_context_that_is_closed_is_cancelled_and_its_name_is_free(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", hang)
    await send(ws, {"text": f"{TEXT} ", "context_id": "a"})
    await busy(running, "token2wav")
    await send(ws, {"context_id": "a", "close_context": True})
    assert audio(await until_final(ws, "a"), "a") == b""
    await all_idle(running)
    hook(running, "token2wav", None)
    await send(ws, {"text": "one ", "context_id": "a", "flush": True}, {"contextId": "a", "close_context": True})
    assert spoken(audio(await until_final(ws, "a"), "a")) == expected_audio("one")


@pytest.mark.start(query={"kind": MULTI})
async def test_a_context_that_finishes_is_cancelled_when_it_is_closed_again(
    ws: ClientConnection, running: Stack
) -> None:
    close = {"context_id": "a", "close_context": True}
    hook(running, "token2wav", hang)
    await send(ws, {"text": f"{TEXT} ", "context_id": "a"}, {"context_id": "a", "flush": True}, close)
    await busy(running, "token2wav")
    await send(ws, close)
    await until_final(ws, "a")
    await all_idle(running)


@pytest.mark.start(query={"kind": MULTI})
async def test_contexts_that_are_closed_at_any_moment_report_no_error(ws: ClientConnection, running: Stack) -> None:
    for number in range(40):
        name = f"a{number % 3}"
        await send(ws, {"text": "one two ", "context_id": name})
        await asyncio.sleep(0.004 * (number % 10))
        await send(ws, {"context_id": name, "close_context": True})
        assert not [message for message in await until_final(ws, name) if "error" in message]
    await all_idle(running)


@pytest.mark.start(query={"kind": MULTI, "auto_mode": "true"})
async def test_auto_mode_does_not_count_as_a_flush_of_the_caller(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", hang)
    await send(ws, {"text": f"{TEXT}.", "context_id": "a"})
    await busy(running, "token2wav")
    await send(ws, {"context_id": "a", "close_context": True})
    await until_final(ws, "a")
    await all_idle(running)


@pytest.mark.start(query={"kind": MULTI})
async def test_a_name_that_is_used_again_waits_for_what_finishes_under_it(ws: ClientConnection, running: Stack) -> None:
    gate = hold_back(running)
    close = {"context_id": "a", "close_context": True}
    await send(ws, {"text": "one ", "context_id": "a", "flush": True}, close)
    await send(ws, {"text": "another ", "context_id": "a", "flush": True}, close)
    await busy(running, "token2wav")
    gate.set()
    assert spoken(audio(await until_final(ws, "a"), "a")) == expected_audio("one")
    assert spoken(audio(await until_final(ws, "a"), "a")) == expected_audio("another")


@pytest.mark.start(query={"kind": MULTI})
async def test_a_context_that_waits_is_dropped_when_it_is_closed(ws: ClientConnection, running: Stack) -> None:
    gate = hold_back(running)
    close = {"context_id": "a", "close_context": True}
    await send(ws, {"text": "one ", "context_id": "a", "flush": True}, close)
    await send(ws, {"text": "another ", "context_id": "a"}, close)
    await busy(running, "token2wav")
    gate.set()
    assert spoken(audio(await until_final(ws, "a"), "a")) == expected_audio("one")
    assert audio(await until_final(ws, "a"), "a") == b""


@pytest.mark.start(query={"kind": MULTI})
async def test_closing_the_socket_finishes_what_was_flushed_and_cancels_the_rest(
    ws: ClientConnection, running: Stack
) -> None:
    gate = hold_back(running)
    await send(ws, {"text": "one ", "context_id": "a", "flush": True}, {"text": "two ", "context_id": "b"})
    await until(lambda: sum(script.active for script in running.scripts["token2wav"]) == 2)
    await send(ws, {"close_socket": True})
    assert audio(await until_final(ws, "b"), "b") == b""
    gate.set()
    assert spoken(audio(await until_final(ws, "a"), "a")) == expected_audio("one")
    assert await closed(ws) == 1000
    await all_idle(running)


@pytest.mark.start(query={"kind": MULTI})
async def test_one_context_too_many_is_refused_and_the_others_go_on(ws: ClientConnection) -> None:
    await send(ws, *({"text": "one ", "context_id": str(number)} for number in range(MOST_CONTEXTS + 1)))
    refused = (await until_final(ws, str(MOST_CONTEXTS)))[-2:]
    assert refused[0]["error"] == "max_active_conversations"
    assert str(MOST_CONTEXTS) in refused[0]["message"]
    await send(ws, {"context_id": "0", "flush": True}, {"context_id": "0", "close_context": True})
    await until_final(ws, "0")


@pytest.mark.start(query={"kind": MULTI, "inactivity_timeout": 0.4})
async def test_a_silent_context_ends_as_if_its_text_had_ended(ws: ClientConnection) -> None:
    await send(ws, {"text": "one", "context_id": "a"})
    assert spoken(audio(await until_final(ws, "a"), "a")) == expected_audio("one")
    assert await closed(ws) == 1000


@pytest.mark.start(query={"kind": MULTI, "inactivity_timeout": 0.6})
async def test_messages_without_text_keep_a_context_alive(ws: ClientConnection) -> None:
    await send(ws, {"text": "one", "context_id": "a"})
    for _ in range(5):
        await asyncio.sleep(0.3)
        await send(ws, {"text": "", "context_id": "a"})
    await send(ws, {"text": "s ", "context_id": "a", "flush": True}, {"context_id": "a", "close_context": True})
    assert spoken(audio(await until_final(ws, "a"), "a")) == expected_audio("ones")


@pytest.mark.parametrize("kind", [SINGLE, MULTI])
@pytest.mark.start(query={"inactivity_timeout": 0.4})
async def test_a_silent_connection_is_closed_and_a_keep_alive_opens_no_context(
    ws: ClientConnection, running: Stack, kind: str
) -> None:
    if kind == MULTI:
        await send(ws, {"text": ""}, {"text": "", "context_id": "a"}, {"context_id": "b", "close_context": True})
    assert await closed(ws) == 1000
    assert running.scripts["frontend"][0].calls == []


@pytest.mark.parametrize("kind", [SINGLE, MULTI])
async def test_hanging_up_leaves_every_stage_idle(ws: ClientConnection, running: Stack, kind: str) -> None:
    hold_back(running)
    await send(ws, {"text": f"{TEXT} "}, *({"text": "two ", "context_id": name} for name in ("a", "b")))
    await busy(running, "token2wav")
    await ws.close()
    await all_idle(running)


@pytest.mark.start(settings={"reader_seconds": 0.5})
async def test_a_caller_that_stops_reading_is_disconnected(served: Gateway, running: Stack) -> None:
    """The buffers of its socket fill up; then the speech waits, and stops."""
    words = 400
    long = " ".join(["everlasting"] * words)
    url = address(served, MULTI, output_format="wav_48000")
    async with connect(url, max_queue=1, open_timeout=20) as ws:
        await send(ws, *({"text": f"{long} ", "context_id": name} for name in ("a", "b")))
        await busy(running, "token2wav")
        ws.transport.pause_reading()
        await all_idle(running)
        assert running.scripts["token2wav"][0].calls.count("decode") < words
        ws.transport.abort()


NO_MESSAGES: list[tuple[list[Any], str]] = [
    (["{"], "JSON"),
    (["[]"], "object"),
    ([b"\0"], "binary"),
    (["{}"], "text"),
    ([{"txt": "one"}], "text"),
    ([{"text": 1}], "text"),
    ([{"text": "one", "flush": "perhaps"}], "flush"),
    ([{"text": " ", "voice_settings": {"speed": "fast"}}], "voice_settings.speed"),
    ([{"text": " ", "voice_settings": []}], "voice_settings"),
    ([{"text": " ", "generation_config": {"seed": -1}}], "generation_config.seed"),
    ([{"text": "one", "context_id": "x" * 200}], "context_id"),
    (['{"text": "\\ud800"}'], "surrogate"),
    ([{"text": "x" * 100_000}], "100000"),
    ([{"text": "x" * 99_000}] * 3, "200000"),
]
NO_QUERIES: list[tuple[Message, str]] = [
    ({"output_format": "mp3"}, "output_format"),
    ({"inactivity_timeout": 0}, "inactivity_timeout"),
    ({"inactivity_timeout": "nan"}, "inactivity_timeout"),
    ({"seed": "x"}, "seed"),
    ({"auto_mode": "perhaps"}, "auto_mode"),
    ({"mode": "letters"}, "mode"),
]


@pytest.mark.parametrize("begun", ["one ", " "])
@pytest.mark.parametrize("kind", [SINGLE, MULTI])
async def test_what_cannot_be_understood_is_refused_and_ends_the_connection(
    served: Gateway, running: Stack, kind: str, begun: str
) -> None:
    """Nothing comes in front of the error: not the end of a context without speech either."""
    hold_back(running)
    for messages, words in NO_MESSAGES:
        async with connect(address(served, kind)) as ws:
            await send(ws, {"text": begun}, *messages)
            error = json.loads(await ws.recv())
            assert (error["error"], error["code"]) == ("invalid_request", 1008)
            assert words in error["message"]
            assert await closed(ws) == 1008
        await all_idle(running)


@pytest.mark.parametrize("kind", [SINGLE, MULTI])
async def test_an_address_that_cannot_be_understood_is_refused(served: Gateway, kind: str) -> None:
    for query, words in NO_QUERIES:
        async with connect(address(served, kind, **query)) as ws:
            assert words in json.loads(await ws.recv())["message"]
            assert await closed(ws) == 1008


@pytest.mark.start(query={"voice": "nobody"})
async def test_a_failure_of_the_only_context_ends_the_connection(ws: ClientConnection) -> None:
    await send(ws, START, {"text": "one "}, EOS)
    assert json.loads(await ws.recv())["error"] == "voice_not_found"
    assert await closed(ws) == 1008


@pytest.mark.start(query={"kind": MULTI})
async def test_a_failure_of_one_context_is_its_own(ws: ClientConnection, running: Stack) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", 5 * 960))
    await send(ws, {"text": f"{TEXT} ", "context_id": "a"})
    error, final = (await until_final(ws, "a"))[-2:]
    assert (error["contextId"], error["code"], final["isFinal"]) == ("a", 1011, True)
    await send(ws, {"text": "one ", "context_id": "b", "flush": True}, {"context_id": "b", "close_context": True})
    assert spoken(audio(await until_final(ws, "b"), "b")) == expected_audio("one")


@pytest.mark.start(max_streams=1, query={"kind": MULTI})
async def test_a_context_too_many_for_the_server_may_come_back(
    ws: ClientConnection, served: Gateway, running: Stack
) -> None:
    gate = hold_back(running)
    await send(ws, {"text": "one ", "context_id": "a"})
    await busy(running, "token2wav")
    await send(ws, {"text": "two ", "context_id": "b"})
    error = (await until_final(ws, "b"))[0]
    assert (error["error"], error["code"]) == ("system_busy", 1013)
    assert error["retry_after_milliseconds"] >= 200
    async with connect(address(served, SINGLE)) as other:
        await send(other, {"text": "one "}, EOS)
        assert json.loads(await other.recv())["error"] == "system_busy"
        assert await closed(other) == 1013
    gate.set()
    await send(ws, {"context_id": "a", "flush": True}, {"context_id": "a", "close_context": True})
    assert spoken(audio(await until_final(ws, "a"), "a")) == expected_audio("one")
