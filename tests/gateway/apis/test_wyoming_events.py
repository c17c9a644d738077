"""Bytes that are no event of Wyoming, and what a connection may hold."""

import asyncio
import json
import random

import pytest
from wyoming.event import Event as TheirEvent
from wyoming.event import async_read_event

from cosyserve.errors import InvalidRequest
from services.gateway.speech.arriving_text import MOST_CHARACTERS, ArrivingText
from services.gateway.wyoming.events import (
    MOST_DATA_BYTES,
    MOST_LINE_BYTES,
    MOST_PAYLOAD_BYTES,
    Event,
    read_event,
)
from tests.stacks.wyoming_server import WyomingCaller, calling, wyoming_server

MALFORMED = [
    (b"\n", "the line of an event is not JSON"),
    (b"GET / HTTP/1.1\r\n", "the line of an event is not JSON"),
    (b"\xff\xfe\n", "the line of an event is not JSON"),
    (b"[" * 100_000 + b"\n", "the line of an event nests arrays and objects more than 100 deep"),
    (b"[]\n", "the line of an event is no JSON object but list"),
    (b"{}\n", "type is missing or no text of 1 to 64 characters"),
    (b'{"type": 5}\n', "type is missing"),
    (b'{"type": ""}\n', "type is missing"),
    (b'{"type": "ping", "data": 5}\n', "data of 'ping' is no JSON object"),
    (b'{"type": "ping", "data_length": -1}\n', "data_length is -1, allowed are 0 to 262144"),
    (b'{"type": "ping", "data_length": true}\n', "data_length is True"),
    (b'{"type": "ping", "data_length": 1.5}\n', "data_length is 1.5"),
    (b'{"type": "ping", "data_length": "4"}\n', "data_length is 4, allowed"),
    (b'{"type": "ping", "data_length": 262145}\n', f"allowed are 0 to {MOST_DATA_BYTES}"),
    (b'{"type": "ping", "payload_length": 99999999999}\n', f"allowed are 0 to {MOST_PAYLOAD_BYTES}"),
    (b'{"type": "ping", "data_length": 2}\n[]', "the data of 'ping' is no JSON object but list"),
    (b'{"type": "ping", "data_length": 2}\n{{', "the data of 'ping' is not JSON"),
    (b'{"type": "ping", "data": {"text": "\\ud800"}}\n', "the line of an event is not JSON"),
    (b'{"type": "synthesize"}\n', "text of synthesize is missing or no text"),
    (b'{"type": "synthesize", "data": {"text": 5}}\n', "text of synthesize is missing or no text"),
    (b'{"type": "synthesize", "data": {"text": "x", "voice": 5}}\n', "voice of synthesize is no JSON object"),
    (b'{"type": "synthesize", "data": {"text": "x", "voice": {"name": 5}}}\n', "voice.name of synthesize is no text"),
    (b'{"type": "synthesize", "data": {"text": "x", "text_format": "x"}}\n', "text_format of synthesize is none of"),
    (b'{"type": "synthesize", "data": {"text": "x", "seed": -1}}\n', "seed of synthesize is no whole number"),
    (b'{"type": "synthesize-chunk", "data": {"text": "x"}}\n', "synthesize-chunk came without a synthesize-start"),
    (b'{"type": "synthesize-stop"}\n', "synthesize-stop came without a synthesize-start"),
    (b'{"type": "synthesize-start"}\n' * 2, "synthesize-start came before the synthesize-stop"),
]


async def refusal(caller: WyomingCaller) -> str:
    """The text of the error, behind which nothing comes."""
    (event,) = await caller.until("error")
    assert event.data["code"] == "invalid_request"
    assert await caller.next() is None
    return str(event.data["text"])


async def test_what_is_malformed_is_refused_with_a_reason() -> None:
    async with wyoming_server() as (_, port, running):
        for sent, message in MALFORMED:
            async with calling(port) as caller:
                caller.writer.write(sent)
                assert message in await refusal(caller)
        assert running.scripts["llm"][0].calls == []


async def test_a_line_without_end_is_refused() -> None:
    async with wyoming_server() as (_, port, _), calling(port) as caller:
        caller.writer.write(b"x" * (MOST_LINE_BYTES + 2))
        assert f"more than the {MOST_LINE_BYTES} bytes allowed" in await refusal(caller)


async def test_an_event_that_comes_too_slowly_is_refused() -> None:
    async with wyoming_server(event=0.2) as (_, port, _), calling(port) as caller:
        caller.writer.write(b'{"type": "ping", "data_length": 10}\n')
        assert "an event did not arrive within 0.2 s" in await refusal(caller)


async def test_a_text_that_becomes_too_long_is_refused() -> None:
    async with wyoming_server(max_waiting_characters=1_000) as (_, port, _), calling(port) as caller:
        await caller.send(TheirEvent("synthesize-start"))
        chunk = TheirEvent("synthesize-chunk", {"text": "a" * 100_000})
        await caller.send(chunk, chunk, TheirEvent("synthesize-chunk", {"text": "a"}))
        events = await caller.until("error")
        assert events[-1].data["text"] == f"an utterance has more than the {MOST_CHARACTERS} characters allowed"


async def test_payloads_and_events_of_others_are_passed_over() -> None:
    async with wyoming_server() as (_, port, _), calling(port) as caller:
        await caller.send(TheirEvent("audio-chunk", {"rate": 16_000}, bytes(MOST_PAYLOAD_BYTES)))
        await caller.send(TheirEvent("transcribe", {"language": "en"}), TheirEvent("ping", {"text": "y"}))
        (pong,) = await caller.until("pong")
    assert pong.data == {"text": "y"}


async def test_idle_connections_are_closed() -> None:
    async with wyoming_server(idle=0.2) as (_, port, _), calling(port) as caller:
        assert await caller.next() is None
        async with calling(port) as another:
            await another.send(TheirEvent("synthesize", {"text": "word"}))
            await another.until("audio-stop")
            assert await another.next() is None


async def test_more_connections_than_allowed_get_an_error() -> None:
    async with wyoming_server(most=1) as (_, port, _), calling(port) as first:
        await first.send(TheirEvent("ping"))
        await first.until("pong")
        async with calling(port) as second:
            (event,) = await second.until("error")
            assert event.data["text"] == "the gateway has the 1 connections of Wyoming that are allowed"
            assert await second.next() is None
        await first.send(TheirEvent("ping"))
        await first.until("pong")


async def test_many_texts_ahead_are_not_all_read() -> None:
    """The buffers fill and the caller waits; nothing is lost."""
    async with wyoming_server() as (_, port, _), calling(port) as caller:
        sending = asyncio.create_task(caller.send(*[TheirEvent("synthesize", {"text": "word"})] * 20))
        for _ in range(20):
            await caller.until("audio-stop")
        await sending


def fed(encoded: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    reader.feed_data(encoded)
    reader.feed_eof()
    return reader


@pytest.mark.parametrize("data", [{}, {"text": 'é世界 "\n'}, {"rate": 24_000, "nested": {"list": [1, None]}}])
@pytest.mark.parametrize("payload", [b"", b"\n{}\x00\xff"])
async def test_their_library_reads_our_events_and_we_read_theirs(data: dict[str, object], payload: bytes) -> None:
    ours = Event("audio-chunk", data, payload)
    read = await async_read_event(fed(ours.to_bytes()))
    assert read is not None
    assert (read.type, read.data, read.payload or b"") == (ours.type, ours.data, ours.payload)
    back = await read_event(fed(ours.to_bytes() + Event("next").to_bytes()), 1.0)
    assert back == Event("audio-chunk", data)


async def test_any_damage_is_an_event_a_refusal_or_the_end() -> None:
    dice, refused = random.Random(5), 0
    whole = Event("synthesize", {"text": "It works."}, b"payload").to_bytes()
    for _ in range(2_000):
        damaged = bytearray(whole)
        for _ in range(dice.randint(1, 3)):
            damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        del damaged[dice.randint(0, len(damaged)) :]
        reader = fed(bytes(damaged))
        try:
            while await read_event(reader, 1.0) is not None:
                pass
        except InvalidRequest:
            refused += 1
    assert refused > 300


async def test_arriving_text_keeps_one_sign_of_life() -> None:
    text = ArrivingText()
    for piece in ("", "", "", "a", "", "b"):
        text.add(piece)
    text.end()
    assert [piece async for piece in text.fragments()] == ["", "a", "b"]
    assert json.dumps(text.characters) == "2"
