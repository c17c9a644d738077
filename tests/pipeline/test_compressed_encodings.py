"""Compressed encodings over gRPC: one file, streamed, and what is said of its samples."""

import asyncio
import io
import threading
from typing import Any

import av
import grpc
import pytest

from cosyserve.audio.compressed import Compressed, FileFormat, file_encoder
from cosyserve.audio.encoding import CompressedEncoding, OutputStream
from cosyserve.client import AsyncClient
from cosyserve.errors import Unavailable
from cosyserve.v1 import audio_pb2, synthesis_pb2
from services.orchestrator import requested_format
from tests.pipeline.calling import (
    TEXT,
    abort_once,
    all_idle,
    audio_of,
    busy,
    hang,
    hang_up,
    hold_back,
    hook,
    speak,
    unary,
)
from tests.stacks.calls import all_of
from tests.stacks.scripted_stages import Stack, expected_audio

NATURAL = synthesis_pb2.ONSET_NATURAL
WHOLE = expected_audio(TEXT)


def requested(encoding: CompressedEncoding, rate: int = 0) -> audio_pb2.AudioFormat:
    return audio_pb2.AudioFormat(
        encoding=audio_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{encoding.name}"), sample_rate_hertz=rate
    )


def file_of(pcm: bytes, encoding: CompressedEncoding, rate: int = 24_000) -> bytes:
    """The file that the shared encoder writes of these 24 kHz samples."""
    resampled, encoder = OutputStream(sample_rate=rate), file_encoder(FileFormat(encoding.value), rate)
    return encoder.encode(resampled.feed(pcm) + resampled.finish()) + encoder.finish()


@pytest.mark.parametrize(
    ("encoding", "rate"), [(each, 24_000) for each in CompressedEncoding] + [(CompressedEncoding.MP3, 44_100)]
)
async def test_all_messages_together_are_the_file_of_the_samples(
    running: Stack, encoding: CompressedEncoding, rate: int
) -> None:
    audio, responses = await speak(running, seed=3, onset=NATURAL, audio_format=requested(encoding, rate))
    pcm, _ = await speak(running, seed=3, onset=NATURAL)
    assert pcm == WHOLE
    assert audio == file_of(pcm, encoding, rate)
    with av.open(io.BytesIO(audio)) as container:
        assert "synthetic audio" in {**container.metadata, **container.streams.audio[0].metadata}.values()
    header, summary = responses[0].header, responses[-1].summary
    assert (header.audio_format.encoding, header.audio_format.sample_rate_hertz) == (
        requested(encoding).encoding,
        rate,
    )
    assert summary.audio_seconds == pytest.approx(len(WHOLE) / 48_000, abs=1e-4)
    assert summary.first_audible_milliseconds > 0


@pytest.mark.parametrize("encoding", CompressedEncoding)
async def test_messages_say_how_far_the_encoder_had_got(running: Stack, encoding: CompressedEncoding) -> None:
    _, responses = await speak(running, seed=3, onset=NATURAL, audio_format=requested(encoding))
    starts = [response.start_sample for response in responses]
    assert [response.chunk_index for response in responses] == list(range(len(responses)))
    assert len(responses) > 3
    assert all(response.audio for response in responses[:-1])
    assert starts == sorted(starts)
    assert (starts[0], starts[-1] <= len(WHOLE) // 2) == (0, True)


@pytest.mark.parametrize("encoding", CompressedEncoding)
async def test_bytes_come_before_the_speech_is_over(running: Stack, encoding: CompressedEncoding) -> None:
    release = asyncio.Event()

    async def stop_in_the_middle(_: Any, sent: int) -> None:
        if sent >= 24_000:
            await release.wait()

    hook(running, "token2wav", stop_in_the_middle)
    call = running.stub.Synthesize(
        synthesis_pb2.SynthesizeRequest(text="everlasting", onset=NATURAL, audio_format=requested(encoding)),
        timeout=20,
    )
    received, responses = b"", aiter(call)
    while len(received) < len(file_of(WHOLE[:24_000], encoding)) // 2:
        received += (await anext(responses)).audio
    assert not release.is_set()
    release.set()
    whole = received + audio_of([response async for response in responses])
    assert whole == file_of(expected_audio("everlasting"), encoding)


@pytest.mark.parametrize("encoding", CompressedEncoding)
async def test_unary_gives_a_whole_file(running: Stack, encoding: CompressedEncoding) -> None:
    answer = await unary(running, seed=3, onset=NATURAL, audio_format=requested(encoding))
    assert (answer.audio, answer.summary.audio_seconds) == (file_of(WHOLE, encoding), len(WHOLE) / 48_000)


async def test_arriving_text_and_conversions_have_them_too(running: Stack) -> None:
    mp3 = requested(CompressedEncoding.MP3)
    call = running.stub.StreamingSynthesize(timeout=20)
    request = synthesis_pb2.SynthesizeRequest(seed=3, onset=NATURAL, audio_format=mp3, sentence_pause_milliseconds=0)
    setup = synthesis_pb2.StreamingSynthesizeSetup(request=request)
    for part in ({"setup": setup}, {"text": TEXT[:9]}, {"text": TEXT[9:]}):
        await call.write(synthesis_pb2.StreamingSynthesizeRequest(**part))
    await call.done_writing()
    assert audio_of(await all_of(call)) == file_of(WHOLE, CompressedEncoding.MP3)
    converted = {"audio": bytes([1, 2, 3]), "voice": "anna", "seed": 3, "onset": NATURAL}
    prompting = synthesis_pb2.PROMPT_MODE_SFT
    plain, coded = [
        audio_of(
            await all_of(
                running.stub.ConvertVoice(
                    synthesis_pb2.ConvertVoiceRequest(prompt_mode=prompting, audio_format=form, **converted)
                )
            )
        )
        for form in (None, mp3)
    ]
    assert coded == file_of(plain, CompressedEncoding.MP3)


async def test_an_interrupted_file_ends_with_the_summary_of_what_was_sent(running: Stack) -> None:
    async def stop_in_the_middle(_: Any, sent: int) -> None:
        if sent >= 24_000:
            await hang()

    hook(running, "token2wav", stop_in_the_middle)
    call = running.stub.StreamingSynthesize(timeout=20)
    request = synthesis_pb2.SynthesizeRequest(onset=NATURAL, audio_format=requested(CompressedEncoding.OGG_OPUS))
    setup = synthesis_pb2.StreamingSynthesizeSetup(request=request)
    await call.write(synthesis_pb2.StreamingSynthesizeRequest(setup=setup))
    await call.write(synthesis_pb2.StreamingSynthesizeRequest(text="everlasting "))
    received = aiter(call)
    first = await anext(received)
    await call.write(synthesis_pb2.StreamingSynthesizeRequest(cancel=synthesis_pb2.Cancel()))
    responses = [first, *[response async for response in received]]
    await all_idle(running)
    last = responses[-1]
    assert (last.summary.cancelled, last.audio) == (True, b"")
    assert last.summary.audio_seconds == last.start_sample / 24_000
    assert file_of(expected_audio("everlasting"), CompressedEncoding.OGG_OPUS).startswith(audio_of(responses))


async def test_hanging_up_frees_everything(running: Stack) -> None:
    hold_back(running)
    call = running.stub.Synthesize(
        synthesis_pb2.SynthesizeRequest(text=TEXT, audio_format=requested(CompressedEncoding.FLAC))
    )
    await hang_up(running, call, busy(running, "token2wav"))


async def test_encoders_work_outside_of_the_event_loop(running: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: set[threading.Thread] = set()
    for name in ("__init__", "encode", "finish"):
        original = getattr(Compressed, name)

        def watched(*arguments: Any, original: Any = original) -> Any:
            threads.add(threading.current_thread())
            return original(*arguments)

        monkeypatch.setattr(Compressed, name, watched)
    await speak(running, audio_format=requested(CompressedEncoding.AAC_ADTS))
    assert threads
    assert threading.main_thread() not in threads


@pytest.mark.parametrize("encoding", CompressedEncoding)
async def test_a_server_without_encoders_says_so_before_any_work(
    running: Stack, encoding: CompressedEncoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requested_format, "is_installed", lambda: False)
    for call in (
        running.stub.Synthesize(synthesis_pb2.SynthesizeRequest(text=TEXT, audio_format=requested(encoding))).read(),
        running.stub.SynthesizeUnary(synthesis_pb2.SynthesizeUnaryRequest(text=TEXT, audio_format=requested(encoding))),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=f"{encoding.name}, and this server has no encoder") as error:
            await call
        assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert all(script.calls == [] for scripts in running.scripts.values() for script in scripts)
    assert (await speak(running))[0] == WHOLE


async def test_the_client_asks_for_them(running: Stack) -> None:
    async with AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
        speech = client.synthesize(
            TEXT, encoding=CompressedEncoding.FLAC, seed=3, onset="natural", sentence_pause_milliseconds=0
        )
        assert await speech.read() == file_of(WHOLE, CompressedEncoding.FLAC)
        assert (speech.header.encoding, speech.first_audible_seconds) == (CompressedEncoding.FLAC, None)
        with pytest.raises(ValueError, match="the bytes of flac are no samples"):
            _ = speech.bytes_per_sample
        audio, header, _ = await client.synthesize_unary(
            TEXT, encoding=CompressedEncoding.MP3, seed=3, onset="natural", sentence_pause_milliseconds=0
        )
        assert (audio, header.encoding) == (file_of(WHOLE, CompressedEncoding.MP3), CompressedEncoding.MP3)


@pytest.mark.start(attempts=1)
async def test_a_file_is_not_resumed_in_the_middle(running: Stack) -> None:
    """The loss is raised: another file behind half of one is no file."""
    async with AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
        hook(running, "token2wav", abort_once(grpc.StatusCode.UNAVAILABLE, "gone", at=24_000))
        speech = client.synthesize("everlasting", encoding=CompressedEncoding.MP3, resumptions=3)
        with pytest.raises(Unavailable):
            await speech.read()
        assert (speech.resumed, len(running.scripts["frontend"][0].calls)) == (0, 1)


@pytest.mark.start(attempts=1)
async def test_what_has_not_begun_is_asked_for_again(running: Stack) -> None:
    async with AsyncClient(f"127.0.0.1:{running.orchestrator.port}") as client:
        hook(running, "token2wav", abort_once(grpc.StatusCode.UNAVAILABLE, "gone", at=0))
        assert await client.synthesize(
            TEXT, encoding=CompressedEncoding.MP3, resumptions=3, onset="natural", sentence_pause_milliseconds=0
        ).read() == file_of(WHOLE, CompressedEncoding.MP3)
