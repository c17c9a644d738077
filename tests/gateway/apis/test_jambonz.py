"""jambonz's API of a text by HTTP: formats by address and header, refusals."""

import io
from typing import Any

import av
import grpc
import httpx2
import pytest

from cosyserve.audio.compressed import FileFormat, file_encoder
from cosyserve.audio.encoding import OutputStream
from tests.gateway.conversing import spoken
from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hold_back, hook
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack, expected_audio

PATH = "/jambonz/synthesize?seed=7"
BODY = {"vendor": "custom:cosyserve", "language": "en-US", "voice": "anna", "type": "text", "text": TEXT}


async def ask(served: Gateway, query: str = "", accept: str | None = None, **fields: Any) -> httpx2.Response:
    headers = {"authorization": "Bearer of-jambonz", **({"accept": accept} if accept else {})}
    return await served.http.post(PATH + query, json=BODY | fields, headers=headers)


FORMATS = [
    ("", None, "audio/mpeg", 24_000),
    ("", "*/*", "audio/mpeg", 24_000),
    ("", "audio/mpeg", "audio/mpeg", 24_000),
    ("", "application/json, audio/mp3", "audio/mpeg", 24_000),
    ("&rate=8000", None, "audio/mpeg", 8_000),
    ("", "audio/wav, audio/mpeg", "audio/wav", 24_000),
    ("", "audio/l16;rate=8000", "audio/l16;rate=8000", 8_000),
    ("", "audio/L16; rate=16000", "audio/l16;rate=16000", 16_000),
    ("", "audio/l16", "audio/l16;rate=8000", 8_000),
    ("&format=l16", None, "audio/l16;rate=8000", 8_000),
    ("&format=l16&rate=24000", "audio/mpeg", "audio/l16;rate=24000", 24_000),
    ("&format=wav&rate=8000", "audio/mpeg", "audio/wav", 8_000),
]


async def test_the_format_is_that_of_the_address_else_of_the_header(served: Gateway) -> None:
    pcm = await served.http.post("/v1/audio/speech", json={"input": TEXT, "seed": 7, "response_format": "pcm"})
    for query, accept, media_type, rate in FORMATS:
        check_format(await ask(served, query, accept), media_type, rate, pcm.content)


def check_format(response: httpx2.Response, media_type: str, rate: int, pcm: bytes) -> None:
    assert (response.status_code, response.headers["content-type"]) == (200, media_type)
    assert response.headers["x-sample-rate"] == str(rate)
    resampled = OutputStream(sample_rate=rate)
    samples = resampled.feed(pcm) + resampled.finish()
    kind = {"audio/mpeg": FileFormat.MP3, "audio/wav": FileFormat.WAV}.get(media_type, FileFormat.PCM)
    encoder = file_encoder(kind, rate)
    assert response.content == encoder.encode(samples) + encoder.finish()


async def test_linear_samples_are_the_speech(served: Gateway) -> None:
    assert spoken((await ask(served, "&format=l16&rate=24000")).content) == expected_audio(TEXT)


async def test_mp3_decodes(served: Gateway) -> None:
    response = await ask(served)
    with av.open(io.BytesIO(response.content)) as container:
        seconds = sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))
    assert seconds == pytest.approx(len(expected_audio(TEXT)) / 48_000, abs=0.7)  # pauses between sentences


async def test_names_of_other_vendors_do_no_harm(served: Gateway) -> None:
    for language in ("en-US", "en_US", "", None, "default", "multi lingual!"):
        assert (await ask(served, "&format=l16", language=language)).status_code == 200, language
    for voice in ("anna", "alloy", "", None):
        assert (await ask(served, "&format=l16", voice=voice)).status_code == 200, voice


REFUSED: list[tuple[str, dict[str, Any], int, str]] = [
    ("&rate=7000", {}, 400, "rate is 7000, allowed are 8000, 16000, 24000, 32000, 48000"),
    ("&rate=x", {}, 400, "rate: "),
    ("&format=ogg", {}, 400, "format: Input should be 'mp3', 'wav' or 'l16'"),
    ("", {"text": 5}, 400, "text: "),
    ("", {"text": "..."}, 400, "nothing to speak"),
    ("", {"type": "x"}, 400, "type: "),
    ("", {"voice": "bertha"}, 404, "no voice"),
]


async def test_refusals_have_a_status_and_a_reason(served: Gateway) -> None:
    for query, fields, status, message in REFUSED:
        response = await ask(served, query, **fields)
        assert (response.status_code, set(response.json())) == (status, {"error", "code"})
        assert message in response.json()["error"]


@pytest.mark.start(attempts=1)
async def test_a_failure_in_the_middle_cuts_the_body(served: Gateway, running: Stack) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", at=24_000))
    with pytest.raises(httpx2.RemoteProtocolError):
        await ask(served, "&format=l16&rate=24000", text="everlasting")


async def test_hanging_up_cancels_every_stage(served: Gateway, running: Stack) -> None:
    hold_back(running)
    async with httpx2.AsyncClient(base_url=f"http://{served.address}") as impatient:
        with pytest.raises(httpx2.ReadTimeout):
            await impatient.post(PATH, json=BODY, timeout=0.5)
        await busy(running, "token2wav")
    await all_idle(running)
