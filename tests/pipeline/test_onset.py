"""The onset of an utterance through the public door: what is cut, what is reported of it, and that
resuming and failing stages do not show.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from cosyserve import errors
from cosyserve.audio.encoding import Encoding, OutputStream
from cosyserve.v1 import audio_pb2
from cosyserve.v1 import synthesis_pb2 as pb
from tests.pipeline.calling import abort_once, speak, status_of
from tests.stacks.scripted_stages import Stack, stack

TEXT = "aaa bb cccc"
PAUSE = 4_800
LEAD, TAIL = 480, 2_400
FORMS: list[tuple[Encoding, int]] = [
    (Encoding.LINEAR16, 24_000),
    (Encoding.LINEAR16, 44_100),
    (Encoding.MULAW, 8_000),
    (Encoding.ALAW, 16_000),
]


def loudness(token: int) -> int:
    """Of every sentence three tokens are silent, six are sound, and the rest is silent."""
    return 1_000 if 3 <= token < 9 else 3


def natural(text: str, pause: int = PAUSE) -> NDArray[np.int16]:
    sentences = [np.repeat([loudness(token) for token in range(5 * len(word))], 960) for word in text.split()]
    parts = [part for sentence in sentences for part in (np.zeros(pause), sentence)][1:]
    return np.concatenate(parts).astype("<i2")


def trimmed(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 32768 * 10 ** (-50 / 20))
    return samples[max(0, loud[0] - LEAD) : loud[-1] + 1 + TAIL]


def formed(samples: NDArray[np.int16], encoding: Encoding, rate: int) -> bytes:
    out = OutputStream(encoding, rate)
    return out.feed(samples.tobytes()) + out.finish()


def form(encoding: Encoding, rate: int) -> dict[str, Any]:
    return {"encoding": audio_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{encoding.name}"), "sample_rate_hertz": rate}


def quiet_ends(running: Stack) -> None:
    for script in running.scripts["token2wav"]:
        script.loudness = loudness


async def written(running: Stack, mode: int, **fields: Any) -> list[pb.SynthesizeResponse]:
    async def requests() -> AsyncIterator[pb.StreamingSynthesizeRequest]:
        request = pb.SynthesizeRequest(seed=1, **fields)
        yield pb.StreamingSynthesizeRequest(setup=pb.StreamingSynthesizeSetup(request=request, mode=mode))  # type: ignore[arg-type]
        for fragment in ("aa", "a bb ", "cc", "cc"):
            # So that it is not known for a while whether another sentence follows.
            await asyncio.sleep(0.05)
            yield pb.StreamingSynthesizeRequest(text=fragment)

    return [response async for response in running.stub.StreamingSynthesize(requests(), timeout=20)]


def audio(responses: list[pb.SynthesizeResponse]) -> bytes:
    return b"".join(response.audio for response in responses)


@pytest.mark.parametrize(("encoding", "rate"), FORMS)
async def test_trimmed_is_natural_without_silence_at_its_ends_in_every_form_and_method(
    encoding: Encoding, rate: int
) -> None:
    whole = natural(TEXT)
    fields = {"audio_format": form(encoding, rate), "sentence_pause_milliseconds": 200}
    async with stack() as running:
        quiet_ends(running)
        for onset, wanted in (
            (pb.ONSET_UNSPECIFIED, trimmed(whole)),
            (pb.ONSET_TRIMMED, trimmed(whole)),
            (pb.ONSET_NATURAL, whole),
        ):
            expected = formed(wanted, encoding, rate)
            assert (await speak(running, TEXT, seed=1, onset=onset, **fields))[0] == expected
            for mode in (pb.StreamingSynthesizeSetup.MODE_SENTENCES, pb.StreamingSynthesizeSetup.MODE_TOKENS):
                assert audio(await written(running, mode, onset=onset, **fields)) == expected
            unary = await running.stub.SynthesizeUnary(
                pb.SynthesizeUnaryRequest(text=TEXT, seed=1, onset=onset, **fields)
            )
            assert unary.audio == expected
            removed = (len(whole) - len(wanted)) / 24
            assert unary.summary.removed_start_milliseconds + unary.summary.removed_end_milliseconds == pytest.approx(
                removed
            )


async def test_header_summary_and_places_report_what_was_removed() -> None:
    async with stack() as running:
        quiet_ends(running)
        heard, responses = await speak(running, TEXT, seed=1)
        _, untouched = await speak(running, TEXT, seed=1, onset=pb.ONSET_NATURAL)
    header, summary = responses[0].header, responses[-1].summary
    start, end = 3 * 960 - LEAD, 11 * 960 - TAIL
    assert (header.onset, header.removed_start_milliseconds) == (pb.ONSET_TRIMMED, start / 24)
    assert (summary.removed_start_milliseconds, summary.removed_end_milliseconds) == (start / 24, end / 24)
    assert summary.audio_seconds == len(heard) / 48_000
    place = 0
    for response in responses:
        assert response.start_sample == place
        assert response.audio or response.HasField("summary")
        place += len(response.audio) // 2
    header, summary = untouched[0].header, untouched[-1].summary
    assert (header.onset, header.removed_start_milliseconds) == (pb.ONSET_NATURAL, 0.0)
    assert (summary.removed_start_milliseconds, summary.removed_end_milliseconds) == (0.0, 0.0)


async def test_upstream_is_natural_and_cannot_be_trimmed() -> None:
    async with stack() as running:
        quiet_ends(running)
        heard, responses = await speak(running, TEXT, seed=1, profile="PROFILE_UPSTREAM")
        error = await status_of(running, TEXT, profile="PROFILE_UPSTREAM", onset=pb.ONSET_TRIMMED)
        unknown = await status_of(running, TEXT, onset=9)
    assert heard == natural(TEXT, 0).tobytes()
    assert responses[0].header.onset == pb.ONSET_NATURAL
    assert (error.code(), unknown.code()) == (grpc.StatusCode.INVALID_ARGUMENT,) * 2
    assert "onset is ONSET_TRIMMED; PROFILE_UPSTREAM has only ONSET_NATURAL" in (error.details() or "")
    assert "onset is 9" in (unknown.details() or "")


@pytest.mark.parametrize("start", [1, 479, 480, 9_000, 20_001])
@pytest.mark.parametrize(("encoding", "rate"), FORMS[:3])
async def test_a_resumed_request_counts_trimmed_samples(start: int, encoding: Encoding, rate: int) -> None:
    fields = {"seed": 1, "audio_format": form(encoding, rate)}
    async with stack() as running:
        quiet_ends(running)
        whole, first = await speak(running, TEXT, **fields)
        start = start * rate // 24_000
        rest, resumed = await speak(running, TEXT, start_sample=start, **fields)
    assert rest == whole[start * encoding.bytes_per_sample :]
    assert resumed[0].header.removed_start_milliseconds == first[0].header.removed_start_milliseconds > 0
    assert resumed[-1].summary.audio_seconds == first[-1].summary.audio_seconds


async def test_a_resumed_request_behind_the_trimmed_end_is_out_of_range() -> None:
    samples = len(trimmed(natural(TEXT, 0)))
    async with stack() as running:
        quiet_ends(running)
        rest, _ = await speak(running, TEXT, seed=1, start_sample=samples)
        error = await status_of(running, TEXT, seed=1, start_sample=samples + 1)
    assert rest == b""
    assert error.code() == grpc.StatusCode.OUT_OF_RANGE
    assert f"{samples} samples" in (error.details() or "")


@pytest.mark.parametrize("failing_at", [0, 960, 2_880, 3_840, 9_600, 13_440])
async def test_a_stage_that_fails_in_the_silence_or_behind_it_is_not_heard(failing_at: int) -> None:
    async with stack({"token2wav": 2}) as running:
        quiet_ends(running)
        running.scripts["token2wav"][0].decode = abort_once(grpc.StatusCode.UNAVAILABLE, "gone", failing_at)
        heard, responses = await speak(running, TEXT, seed=1)
    assert heard == trimmed(natural(TEXT, 0)).tobytes()
    assert sum(script.calls.count("decode") for script in running.scripts["token2wav"]) == 4
    assert responses[-1].summary.resumptions == 1


@pytest.mark.parametrize(
    ("failing_at", "onset", "repaired"),
    [
        (1_920, pb.ONSET_TRIMMED, True),
        (2_880, pb.ONSET_TRIMMED, True),
        (3_840, pb.ONSET_TRIMMED, False),
        (1_920, pb.ONSET_NATURAL, False),
    ],
)
async def test_a_sentence_of_which_only_silence_was_removed_is_spoken_again(
    failing_at: int, onset: pb.Onset, repaired: bool
) -> None:
    """The fault is found behind that many samples of the first sentence, of which the first 2880
    are silent.
    """
    failed: list[int] = []

    async def fail(context: Any, sent: int) -> None:
        if sent == failing_at and not failed:
            failed.append(sent)
            # A call that ends while tokens are still being written to it is taken for a lost one.
            await asyncio.sleep(0.1)
            raise errors.NonFinite("samples are not finite")

    async with stack() as running:
        quiet_ends(running)
        running.scripts["token2wav"][0].decode = fail
        if repaired:
            heard, responses = await speak(running, TEXT, seed=1, onset=onset, retry=True)
            assert heard == trimmed(natural(TEXT, 0)).tobytes()
            assert [number for response in responses for number in response.retried_sentences] == [0]
        else:
            error = await status_of(running, TEXT, seed=1, onset=onset, retry=True)
            assert error.code() == grpc.StatusCode.INTERNAL
    assert failed == [failing_at]


async def test_a_conversion_is_trimmed_too() -> None:
    request = {"audio": bytes(range(20)), "seed": 1}
    whole = np.repeat([loudness(token) for token in range(20)], 960).astype("<i2")
    async with stack() as running:
        quiet_ends(running)
        for onset, wanted in ((pb.ONSET_UNSPECIFIED, trimmed(whole)), (pb.ONSET_NATURAL, whole)):
            call = running.stub.ConvertVoice(pb.ConvertVoiceRequest(onset=onset, **request), timeout=20)
            responses = [response async for response in call]
            assert audio(responses) == wanted.tobytes()
            assert responses[0].header.onset == (onset or pb.ONSET_TRIMMED)


async def test_silence_throughout_is_sent() -> None:
    async with stack() as running:
        running.scripts["token2wav"][0].loudness = lambda token: 3
        heard, responses = await speak(running, "aa bb", seed=1)
    assert heard == np.full(2 * 10 * 960, 3, "<i2").tobytes()
    assert responses[-1].summary.first_audible_milliseconds == 0.0


async def test_the_silence_in_front_delays_the_first_audible_sample_and_a_cut_one_does_not() -> None:
    """The sound of every sentence is there at once: natural, its player has 120 ms of silence to
    play first; trimmed, 20 ms.
    """
    async with stack() as running:
        quiet_ends(running)
        found = {}
        for onset in (pb.ONSET_NATURAL, pb.ONSET_TRIMMED):
            _, responses = await speak(running, TEXT, seed=1, onset=onset)
            found[onset] = responses[-1].summary
    late = {
        onset: summary.first_audible_milliseconds - summary.first_sound_milliseconds for onset, summary in found.items()
    }
    assert late[pb.ONSET_NATURAL] >= 120 - 1e-6
    assert late[pb.ONSET_TRIMMED] == pytest.approx(20, abs=2)
