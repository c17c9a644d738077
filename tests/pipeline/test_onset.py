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
from tests.pipeline.calling import abort_once, audio_of, hook, once, speak
from tests.stacks.calls import all_of, check_places, refusal
from tests.stacks.scripted_stages import Stack

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
    return np.concatenate([part for sentence in sentences for part in (np.zeros(pause), sentence)][1:]).astype("<i2")


def trimmed(samples: NDArray[np.int16]) -> NDArray[np.int16]:
    loud = np.flatnonzero(np.abs(samples.astype(np.int32)) > 32768 * 10 ** (-50 / 20))
    return samples[max(0, loud[0] - LEAD) : loud[-1] + 1 + TAIL]


def formed(samples: NDArray[np.int16], encoding: Encoding, rate: int) -> bytes:
    out = OutputStream(encoding, rate)
    return out.feed(samples.tobytes()) + out.finish()


def form(encoding: Encoding, rate: int) -> dict[str, Any]:
    return {"encoding": audio_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{encoding.name}"), "sample_rate_hertz": rate}


@pytest.fixture(autouse=True)
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

    return await all_of(running.stub.StreamingSynthesize(requests(), timeout=20))


@pytest.mark.parametrize(("encoding", "rate"), FORMS)
async def test_trimmed_is_natural_without_silence_at_its_ends_in_every_form_and_method(
    running: Stack, encoding: Encoding, rate: int
) -> None:
    whole = natural(TEXT)
    fields = {"audio_format": form(encoding, rate), "sentence_pause_milliseconds": 200}
    for onset, wanted in (
        (pb.ONSET_UNSPECIFIED, trimmed(whole)),
        (pb.ONSET_TRIMMED, trimmed(whole)),
        (pb.ONSET_NATURAL, whole),
    ):
        expected = formed(wanted, encoding, rate)
        assert (await speak(running, TEXT, seed=1, onset=onset, **fields))[0] == expected
        for mode in (pb.StreamingSynthesizeSetup.MODE_SENTENCES, pb.StreamingSynthesizeSetup.MODE_TOKENS):
            assert audio_of(await written(running, mode, onset=onset, **fields)) == expected
        unary = await running.stub.SynthesizeUnary(pb.SynthesizeUnaryRequest(text=TEXT, seed=1, onset=onset, **fields))
        assert unary.audio == expected
        assert unary.summary.removed_start_milliseconds + unary.summary.removed_end_milliseconds == pytest.approx(
            (len(whole) - len(wanted)) / 24
        )


def removed(responses: list[pb.SynthesizeResponse]) -> tuple[int, float, float]:
    """The onset, and the milliseconds of silence that are reported as cut at the start and end."""
    header, summary = responses[0].header, responses[-1].summary
    assert header.removed_start_milliseconds == summary.removed_start_milliseconds
    return header.onset, summary.removed_start_milliseconds, summary.removed_end_milliseconds


async def test_header_summary_and_places_report_what_was_removed(running: Stack) -> None:
    heard, responses = await speak(running, TEXT, seed=1)
    _, untouched = await speak(running, TEXT, seed=1, onset=pb.ONSET_NATURAL)
    assert removed(responses) == (pb.ONSET_TRIMMED, (3 * 960 - LEAD) / 24, (11 * 960 - TAIL) / 24)
    assert responses[-1].summary.audio_seconds == len(heard) / 48_000
    check_places(responses)
    assert all(response.audio or response.HasField("summary") for response in responses)
    assert removed(untouched) == (pb.ONSET_NATURAL, 0.0, 0.0)


async def test_upstream_is_natural_and_cannot_be_trimmed(running: Stack) -> None:
    heard, responses = await speak(running, TEXT, seed=1, profile="PROFILE_UPSTREAM")
    assert (heard, responses[0].header.onset) == (natural(TEXT, 0).tobytes(), pb.ONSET_NATURAL)
    await refusal(
        speak(running, TEXT, profile="PROFILE_UPSTREAM", onset=pb.ONSET_TRIMMED),
        grpc.StatusCode.INVALID_ARGUMENT,
        "onset is ONSET_TRIMMED; PROFILE_UPSTREAM has only ONSET_NATURAL",
    )
    await refusal(speak(running, TEXT, onset=9), grpc.StatusCode.INVALID_ARGUMENT, "onset is 9")


@pytest.mark.parametrize("start", [1, 479, 480, 9_000, 20_001])
@pytest.mark.parametrize(("encoding", "rate"), FORMS[:3])
async def test_a_resumed_request_counts_trimmed_samples(
    running: Stack, start: int, encoding: Encoding, rate: int
) -> None:
    fields = {"seed": 1, "audio_format": form(encoding, rate)}
    whole, first = await speak(running, TEXT, **fields)
    start = start * rate // 24_000
    rest, resumed = await speak(running, TEXT, start_sample=start, **fields)
    assert rest == whole[start * encoding.bytes_per_sample :]
    assert resumed[0].header.removed_start_milliseconds == first[0].header.removed_start_milliseconds > 0
    assert resumed[-1].summary.audio_seconds == first[-1].summary.audio_seconds


async def test_a_resumed_request_behind_the_trimmed_end_is_out_of_range(running: Stack) -> None:
    samples = len(trimmed(natural(TEXT, 0)))
    rest, _ = await speak(running, TEXT, seed=1, start_sample=samples)
    await refusal(
        speak(running, TEXT, seed=1, start_sample=samples + 1), grpc.StatusCode.OUT_OF_RANGE, f"{samples} samples"
    )
    assert rest == b""


@pytest.mark.parametrize("failing_at", [0, 960, 2_880, 3_840, 9_600, 13_440])
@pytest.mark.start(replicas={"token2wav": 2})
async def test_a_stage_that_fails_in_the_silence_or_behind_it_is_not_heard(running: Stack, failing_at: int) -> None:
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
    running: Stack, failing_at: int, onset: pb.Onset, repaired: bool
) -> None:
    """The fault is found behind that many samples of the first sentence, of which the first 2880
    are silent.
    """
    failed = asyncio.Event()

    async def fail(_: Any) -> None:
        failed.set()
        # A call that ends while tokens are still being written to it is taken for a lost one.
        await asyncio.sleep(0.1)
        raise errors.NonFinite("samples are not finite")

    hook(running, "token2wav", once(failing_at, fail))
    if repaired:
        heard, responses = await speak(running, TEXT, seed=1, onset=onset, retry=True)
        assert heard == trimmed(natural(TEXT, 0)).tobytes()
        assert [number for response in responses for number in response.retried_sentences] == [0]
    else:
        await refusal(speak(running, TEXT, seed=1, onset=onset, retry=True), grpc.StatusCode.INTERNAL)
    assert failed.is_set()


async def test_a_conversion_is_trimmed_too(running: Stack) -> None:
    request = {"audio": bytes(range(20)), "seed": 1}
    whole = np.repeat([loudness(token) for token in range(20)], 960).astype("<i2")
    for onset, wanted in ((pb.ONSET_UNSPECIFIED, trimmed(whole)), (pb.ONSET_NATURAL, whole)):
        responses = await all_of(running.stub.ConvertVoice(pb.ConvertVoiceRequest(onset=onset, **request), timeout=20))
        assert audio_of(responses) == wanted.tobytes()
        assert responses[0].header.onset == (onset or pb.ONSET_TRIMMED)


async def test_silence_throughout_is_sent(running: Stack) -> None:
    running.scripts["token2wav"][0].loudness = lambda token: 3
    heard, responses = await speak(running, "aa bb", seed=1)
    assert heard == np.full(2 * 10 * 960, 3, "<i2").tobytes()
    assert responses[-1].summary.first_audible_milliseconds == 0.0


async def test_the_silence_in_front_delays_the_first_audible_sample_and_a_cut_one_does_not(running: Stack) -> None:
    """The sound of every sentence is there at once: natural, its player has 120 ms of silence to
    play first; trimmed, 20 ms.
    """
    late = {}
    for onset in (pb.ONSET_NATURAL, pb.ONSET_TRIMMED):
        summary = (await speak(running, TEXT, seed=1, onset=onset))[1][-1].summary
        late[onset] = summary.first_audible_milliseconds - summary.first_sound_milliseconds
    assert late[pb.ONSET_NATURAL] >= 120 - 1e-6
    assert late[pb.ONSET_TRIMMED] == pytest.approx(20, abs=2)
