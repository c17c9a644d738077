"""Wyoming: what Home Assistant sends and reads, interruptions, failures."""

import asyncio
import os
import signal
import socket
import sys
from typing import Any
from unittest.mock import AsyncMock

import grpc
import pytest
from wyoming.audio import AudioChunk, AudioStart
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart, SynthesizeStop, SynthesizeVoice

from cosyserve.client import AsyncClient
from cosyserve.client.types import VoiceLine
from cosyserve.host.supervision.layout import free_ports
from services.gateway.speech.voice_names import VoiceNames
from tests.gateway.conversing import spoken
from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hang, hold_back, hook
from tests.stacks.calls import until
from tests.stacks.scripted_stages import expected_audio, stack
from tests.stacks.wyoming_server import WyomingCaller, calling, wyoming_server

STREAMED = ["audio-start", "audio-chunk", "audio-stop", "synthesize-stopped"]


def audio_of(events: list[Event]) -> bytes:
    return b"".join(AudioChunk.from_event(event).audio for event in events if event.type == "audio-chunk")


def kinds(events: list[Event]) -> list[str]:
    """Types in order, each once in a row."""
    return [event.type for at, event in enumerate(events) if not at or events[at - 1].type != event.type]


def failure(events: list[Event]) -> Error:
    assert events[-1].type == "error", [event.type for event in events]
    return Error.from_event(events[-1])


async def test_info_names_the_voices_and_the_streaming() -> None:
    async with wyoming_server() as (_, port, _), calling(port) as caller:
        await caller.send(Describe().event())
        (answer,) = await caller.until("info")
        await caller.send(Ping(text="x").event())
        assert Pong.from_event((await caller.until("pong"))[0]).text == "x"
    (program,) = Info.from_event(answer).tts
    assert (program.supports_synthesize_streaming, program.installed) == (True, True)
    assert [voice.name for voice in program.voices] == ["anna"]
    assert all(voice.languages for voice in program.voices)


async def test_a_text_is_the_speech_of_the_other_apis() -> None:
    async with wyoming_server() as (_, port, running), calling(port) as caller:
        await caller.send(Event("synthesize", {"text": TEXT, "seed": 7}))
        events = await caller.until("audio-stop")
        async with AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
            assert audio_of(events) == await client.synthesize(TEXT, seed=7).read()
    assert kinds(events) == STREAMED[:3]
    start = AudioStart.from_event(events[0])
    assert (start.rate, start.width, start.channels) == (24_000, 2, 1)
    times = [AudioChunk.from_event(event).timestamp for event in events if event.type == "audio-chunk"]
    assert times == sorted(times, key=lambda time: time or 0)
    assert times[0] == 0


async def test_a_connection_takes_one_text_after_the_other() -> None:
    async with wyoming_server() as (_, port, _), calling(port) as caller:
        await caller.send(Synthesize(text="first").event(), Synthesize(text="second").event())
        for text in ("first", "second"):
            assert audio_of(await caller.until("audio-stop")) == expected_audio(text)


async def stream(caller: WyomingCaller, *pieces: str, **start: Any) -> None:
    """As Home Assistant streams: the whole text once more, for servers that do not stream."""
    await caller.send(
        SynthesizeStart(**start).event(),
        *(SynthesizeChunk(text=piece).event() for piece in pieces),
        Synthesize(text="".join(pieces)).event(),
        SynthesizeStop().event(),
    )


@pytest.mark.parametrize("cut", [1, 5, 1_000])
async def test_a_streamed_text_is_spoken_once(cut: int) -> None:
    async with wyoming_server() as (_, port, running), calling(port) as caller:
        await stream(caller, *(TEXT[at : at + cut] for at in range(0, len(TEXT), cut)))
        events = await caller.until("synthesize-stopped")
        async with AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
            assert audio_of(events) == await client.synthesize(TEXT, seed=7).read()
        await caller.send(Synthesize(text="again").event())
        assert kinds(await caller.until("audio-stop")) == STREAMED[:3]
    assert kinds(events) == STREAMED


async def test_audio_comes_while_the_text_is_still_arriving() -> None:
    async with wyoming_server() as (_, port, _), calling(port) as caller:
        await caller.send(SynthesizeStart().event(), SynthesizeChunk(text="everlasting more").event())
        events = await caller.until("audio-chunk")
        await caller.send(SynthesizeChunk(text=" text").event(), SynthesizeStop().event())
        events += await caller.until("synthesize-stopped")
    assert kinds(events) == STREAMED
    assert spoken(audio_of(events)) == expected_audio("everlasting more text")


async def test_audio_comes_before_the_speech_is_over() -> None:
    async with wyoming_server() as (_, port, running), calling(port) as caller:

        async def stop_in_the_middle(_: Any, sent: int) -> None:
            if sent >= 24_000:
                await hang()

        hook(running, "token2wav", stop_in_the_middle)
        await caller.send(Synthesize(text="everlasting").event())
        assert kinds(await caller.until("audio-chunk")) == STREAMED[:2]
        assert any(script.active for script in running.scripts["token2wav"])


async def test_a_text_without_words_is_answered() -> None:
    async with wyoming_server() as (_, port, running), calling(port) as caller:
        await stream(caller, " ", "\n")
        assert kinds(await caller.until("synthesize-stopped")) == ["synthesize-stopped"]
        assert running.scripts["frontend"][0].calls == []
        await caller.send(Synthesize(text="...").event())
        assert failure(await caller.until("audio-stop")).code == "invalid_request"
        assert await caller.next() is None


@pytest.mark.parametrize(
    "voice", [None, SynthesizeVoice(name="anna"), SynthesizeVoice(name="alloy"), SynthesizeVoice(language="en_US")]
)
async def test_voices_by_name_and_by_language(voice: SynthesizeVoice | None) -> None:
    async with wyoming_server() as (_, port, _), calling(port) as caller:
        await caller.send(Synthesize(text="word", voice=voice).event())
        assert kinds(await caller.until("audio-stop")) == STREAMED[:3]
        await stream(caller, "word", voice=voice)
        assert kinds(await caller.until("synthesize-stopped")) == STREAMED


@pytest.mark.parametrize("streamed", [False, True])
async def test_hanging_up_cancels_every_stage(streamed: bool) -> None:
    async with wyoming_server() as (_, port, running):
        hold_back(running)
        async with calling(port) as caller:
            if streamed:
                await caller.send(SynthesizeStart().event(), SynthesizeChunk(text="everlasting more").event())
            else:
                await caller.send(Synthesize(text="everlasting").event())
            await busy(running, "token2wav")
        await all_idle(running)


async def test_a_failure_is_an_error_and_closes() -> None:
    async with wyoming_server(attempts=1) as (_, port, running):
        hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", at=24_000))
        async with calling(port) as caller:
            await caller.send(Synthesize(text="everlasting").event())
            assert failure(await caller.until("audio-stop")).code == "internal"
            assert await caller.next() is None
        await all_idle(running)


async def test_a_full_server_says_so() -> None:
    async with wyoming_server(max_streams=1) as (_, port, running):
        hold_back(running)
        async with calling(port) as first, calling(port) as second:
            await first.send(Synthesize(text="everlasting").event())
            await busy(running, "token2wav")
            await second.send(Synthesize(text="word").event())
            assert failure(await second.until("audio-stop")).code == "overloaded"


async def test_a_caller_that_stops_reading_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "services.gateway.wyoming.connection")
    async with wyoming_server(reader=0.5) as (_, port, running):
        with socket.socket() as caller:
            caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
            await asyncio.to_thread(caller.connect, ("127.0.0.1", port))
            text = " ".join(["everlasting"] * 200)
            caller.sendall(Event("synthesize").type.join(('{"type": "', '", "data": {"text": "')).encode())
            caller.sendall(f'{text}"}}}}\n'.encode())
            await until(lambda: "the caller has read nothing for 0.5 s" in caplog.text)
            await all_idle(running)


async def test_the_drain_speaks_what_was_asked_for_and_takes_nothing_more() -> None:
    async with wyoming_server() as (server, port, running):
        gate = hold_back(running)
        async with calling(port) as idle, calling(port) as speaking:
            await speaking.send(Synthesize(text="word").event())
            await busy(running, "token2wav")
            closing = asyncio.create_task(server.close(20.0))
            assert await idle.next() is None
            with pytest.raises(OSError):  # noqa: PT011  # refused or reset
                await asyncio.open_connection("127.0.0.1", port)
            assert not closing.done()
            gate.set()
            assert kinds(await speaking.until("audio-stop")) == STREAMED[:3]
            assert await speaking.next() is None
            await closing


async def test_what_does_not_end_in_the_drain_is_cut() -> None:
    async with wyoming_server() as (server, port, running):
        hold_back(running)
        async with calling(port) as caller:
            await caller.send(Synthesize(text="word").event())
            await busy(running, "token2wav")
            await server.close(0.1)
            assert await caller.next() is None
        await all_idle(running)


async def test_the_gateway_serves_it_where_the_setting_says() -> None:
    http, wyoming = free_ports(2)
    async with stack() as running:
        environ = {
            **os.environ,
            "COSYSERVE_GATEWAY_ORCHESTRATOR": f"127.0.0.1:{running.orchestrator.port}",
            "COSYSERVE_GATEWAY_LISTEN": f"127.0.0.1:{http}",
            "COSYSERVE_GATEWAY_WYOMING_LISTEN": f"127.0.0.1:{wyoming}",
        }
        process = await asyncio.create_subprocess_exec(sys.executable, "-m", "services.gateway", env=environ)
        try:
            async with asyncio.timeout(60):
                await _until_listening(wyoming)
                async with calling(wyoming) as caller:
                    await caller.send(Synthesize(text=TEXT).event())
                    assert kinds(await caller.until("audio-stop")) == STREAMED[:3]
                    process.send_signal(signal.SIGTERM)
                    assert await caller.next() is None
                assert await process.wait() in (0, -signal.SIGTERM)  # uvicorn ends by the signal
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _until_listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.1)
            continue
        writer.close()
        return


async def test_a_language_is_that_of_the_default_voice_or_of_the_first_that_has_it() -> None:
    lines = [
        VoiceLine("one", "h", 1.0, is_default=False, language_code="zh-CN"),
        VoiceLine("two", "h", 1.0, is_default=False, language_code="en-GB"),
        VoiceLine("three", "h", 1.0, is_default=True, language_code="en-US"),
        VoiceLine("four", "h", 1.0, is_default=False, language_code="zh"),
    ]
    names = VoiceNames(AsyncMock(return_value=lines))
    chosen = [await names.voice_speaking(tag) for tag in ("en-GB", "zh_TW", "ZH", "de", "")]
    assert chosen == ["", "one", "one", "", ""]
