"""ElevenLabs' HTTP endpoints over real sockets and real gRPC: formats, times of characters, voices,
models, refusals, callers that hang up.
"""

import asyncio
import base64
import io
import json
from typing import Any

import av
import grpc
import httpx2
import pytest

from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hang_after_some, hold_back, hook
from tests.stacks.gateway_server import Gateway
from tests.stacks.scripted_stages import Stack

PATH = "/v1/text-to-speech/anna"
WRITTEN = "one, two. Three!"


async def speak(served: Gateway, address: str = PATH, **fields: Any) -> httpx2.Response:
    query = {name: fields.pop(name) for name in ("output_format",) if name in fields}
    return await served.http.post(address, params=query, json={"text": TEXT, "seed": 7, **fields})


async def openai(served: Gateway, text: str = TEXT, seed: int = 7) -> bytes:
    body = {"input": text, "seed": seed, "response_format": "pcm"}
    return (await served.http.post("/v1/audio/speech", json=body)).content


def timed(running: Stack) -> None:
    for stage in ("frontend", "llm"):
        for script in running.scripts[stage]:
            script.timed = True


@pytest.mark.parametrize("ending", ["", "/stream"])
async def test_pcm_is_that_of_openais_endpoint(served: Gateway, ending: str) -> None:
    response = await speak(served, PATH + ending, output_format="pcm_24000")
    assert response.content == await openai(served)
    assert response.status_code == 200
    assert (response.headers["content-type"], response.headers["x-seed"]) == ("audio/pcm", "7")
    assert response.headers["x-synthetic-audio"] == "true"


FILES = ["mp3_22050_32", "mp3_24000_48", "mp3_44100", "mp3_44100_192", "opus_48000_32", "wav_16000", "wav_44100"]


async def test_files_decode_to_the_length_at_the_rate_that_they_name(served: Gateway) -> None:
    wanted = len(await openai(served)) / 48_000
    for name in FILES:
        content = (await speak(served, output_format=name)).content
        with av.open(io.BytesIO(content)) as container:
            frames = list(container.decode(audio=0))
        assert {frame.sample_rate for frame in frames} == {int(name.split("_")[1])}, name
        seconds = sum(frame.samples / frame.sample_rate for frame in frames)
        assert wanted - 0.001 <= seconds <= wanted + (0.1 if name.startswith("mp3") else 0.021), name


SAMPLES = [
    ("pcm_8000", 16_000, "audio/pcm"),
    ("pcm_48000", 96_000, "audio/pcm"),
    ("ulaw_8000", 8_000, "audio/basic"),
    ("alaw_8000", 8_000, "audio/x-alaw-basic"),
]


async def test_plain_samples_have_the_rate_that_they_name(served: Gateway) -> None:
    wanted = len(await openai(served)) / 48_000
    for name, bytes_per_second, media_type in SAMPLES:
        response = await speak(served, output_format=name)
        assert response.headers["content-type"] == media_type
        assert len(response.content) == pytest.approx(wanted * bytes_per_second, abs=2)


async def test_without_a_format_it_is_mp3(served: Gateway) -> None:
    response = await speak(served)
    assert response.headers["content-type"] == "audio/mpeg"
    with av.open(io.BytesIO(response.content)) as container:
        assert (container.format.name, container.streams.audio[0].rate) == ("mp3", 44_100)


async def test_lines_carry_the_audio_and_every_character(served: Gateway, running: Stack) -> None:
    timed(running)
    address = PATH + "/stream/with-timestamps"
    response = await speak(served, address, text=WRITTEN, output_format="pcm_24000")
    pcm = await openai(served, WRITTEN)
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert b"".join(base64.b64decode(line["audio_base64"]) for line in lines) == pcm
    for field in ("alignment", "normalized_alignment"):
        parts = [line[field] for line in lines if line[field] is not None]
        characters = [each for part in parts for each in part["characters"]]
        starts = [each for part in parts for each in part["character_start_times_seconds"]]
        ends = [each for part in parts for each in part["character_end_times_seconds"]]
        assert "".join(characters) == WRITTEN
        assert starts == sorted(starts)
        assert all(start <= end for start, end in zip(starts, ends, strict=True))
        assert starts[0] == 0
        assert ends[-1] == pytest.approx(len(pcm) / 48_000, abs=0.01)


async def test_one_object_carries_the_same(served: Gateway, running: Stack) -> None:
    timed(running)
    whole = (await speak(served, PATH + "/with-timestamps", text=WRITTEN, output_format="wav_16000")).json()
    plain = (await speak(served, text=WRITTEN, output_format="wav_16000")).content
    assert base64.b64decode(whole["audio_base64"]) == plain
    assert "".join(whole["alignment"]["characters"]) == WRITTEN


@pytest.mark.parametrize("ending", ["/with-timestamps", "/stream/with-timestamps"])
async def test_a_model_without_word_times_gives_none(served: Gateway, ending: str) -> None:
    response = await speak(served, PATH + ending)
    for line in map(json.loads, response.text.splitlines()):
        assert (line["alignment"], line["normalized_alignment"]) == (None, None)


async def test_settings_reach_the_speech_and_fields_without_a_counterpart_are_ignored(
    served: Gateway, running: Stack
) -> None:
    response = await speak(
        served,
        seed=None,
        model_id="eleven_flash_v2_5",
        language_code="en",
        voice_settings={"speed": 1.2, "stability": 0.5, "style": None, "use_speaker_boost": True},
        previous_text="Before.",
        next_text=None,
        apply_text_normalization="auto",
        pronunciation_dictionary_locators=[],
    )
    assert response.status_code == 200
    assert running.scripts["token2wav"][0].decode_setups[-1].speed == 1.2


REFUSALS: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("/v1/text-to-speech/nobody", {}, 404, "voice_not_found", "nobody"),
    (PATH, {"text": ""}, 400, "invalid_request", "text"),
    (PATH, {"text": None}, 400, "invalid_request", "text"),
    (PATH, {"output_format": "mp3_1_2"}, 400, "invalid_request", "mp3_44100_128"),
    (PATH, {"output_format": "pcm"}, 400, "invalid_request", "output_format"),
    (PATH, {"seed": -1}, 400, "invalid_request", "seed"),
    (PATH, {"voice_settings": {"speed": 9}}, 400, "invalid_request", "speed"),
    (PATH, {"voice_settings": {"speed": "fast"}}, 400, "invalid_request", "voice_settings.speed"),
    (PATH, {"padding": "x" * (1 << 20)}, 413, "body_too_large", "1048576"),
    (f"{PATH}/nothing", {}, 404, "no_such_path", "Not Found"),
]


async def test_refusals_have_the_form_of_this_api(served: Gateway) -> None:
    for address, fields, status, name, words in REFUSALS:
        response = await speak(served, address, **fields)
        detail = response.json()["detail"]
        assert (response.status_code, detail["status"]) == (status, name)
        assert words in detail["message"]


async def test_what_is_no_json_is_refused(served: Gateway) -> None:
    response = await served.http.post(PATH, content=b"{", headers={"content-type": "application/json"})
    other = await served.http.get(PATH)
    assert (response.status_code, response.json()["detail"]["status"]) == (400, "invalid_json")
    assert (other.status_code, other.json()["detail"]["status"]) == (405, "method_not_allowed")


@pytest.mark.start(max_streams=1)
async def test_one_too_many_may_come_back(served: Gateway, running: Stack) -> None:
    gate = hold_back(running)
    first = asyncio.create_task(speak(served))
    await busy(running, "token2wav")
    refused = await speak(served)
    gate.set()
    assert (await first).status_code == 200
    assert (refused.status_code, refused.json()["detail"]["status"]) == (429, "system_busy")
    assert int(refused.headers["retry-after-ms"]) >= 200


@pytest.mark.parametrize("ending", ["", "/stream/with-timestamps", "/with-timestamps"])
async def test_a_failure_in_the_middle_cuts_the_body(served: Gateway, running: Stack, ending: str) -> None:
    hook(running, "token2wav", abort_once(grpc.StatusCode.INTERNAL, "broken", 20 * 960))
    with pytest.raises(httpx2.RemoteProtocolError):
        await speak(served, PATH + ending, output_format="pcm_24000")
    await all_idle(running)


@pytest.mark.parametrize("ending", ["/stream", "/stream/with-timestamps", "/with-timestamps"])
async def test_hanging_up_leaves_every_stage_idle(served: Gateway, running: Stack, ending: str) -> None:
    hook(running, "token2wav", hang_after_some)
    query = {"output_format": "pcm_24000"}
    async with served.http.stream("POST", PATH + ending, params=query, json={"text": TEXT}) as response:
        await anext(response.aiter_raw())
    await all_idle(running)


async def test_voices_whole_page_by_page_and_one(served: Gateway) -> None:
    (voice,) = (await served.http.get("/v1/voices")).json()["voices"]
    page = (await served.http.get("/v2/voices", params={"search": "ANN", "page_size": 1})).json()
    none = (await served.http.get("/v2/voices", params={"search": "nobody"})).json()
    refused = await served.http.get("/v2/voices", params={"page_size": 0})
    assert (voice["voice_id"], voice["name"], voice["category"]) == ("anna", "anna", "cloned")
    assert page == {"voices": [voice], "has_more": False, "total_count": 1, "next_page_token": None}
    assert none == {"voices": [], "has_more": False, "total_count": 0, "next_page_token": None}
    assert (refused.status_code, refused.json()["detail"]["param"]) == (400, "page_size")


async def test_an_id_of_elevenlabs_is_a_voice_of_this_server(served: Gateway) -> None:
    response = await speak(served, "/v1/text-to-speech/21m00Tcm4TlvDq8ikWAM", output_format="pcm_24000")
    assert response.content == await openai(served)
    assert response.headers["x-voice"] == "anna"


@pytest.mark.parametrize("headers", [{"xi-api-key": "any"}, {"x-fern-sdk-name": "elevenlabs"}])
async def test_each_client_gets_models_in_its_form(served: Gateway, headers: dict[str, str]) -> None:
    own = (await served.http.get("/v1/models", headers=headers)).json()
    other = (await served.http.get("/v1/models", headers={"authorization": "Bearer any"})).json()
    one = (await served.http.get("/v1/models/tts-1", headers=headers)).json()
    assert {model["model_id"] for model in own} >= {"cosyvoice2", "eleven_flash_v2_5"}
    assert all(model["can_do_text_to_speech"] for model in own)
    assert (other["object"], one["object"]) == ("list", "model")


@pytest.mark.parametrize(("model", "named"), [("", "cosyvoice2"), ("cosyvoice2", "cosyvoice2"), ("cosyvoice3",) * 2])
async def test_the_model_is_named_by_its_generation(served: Gateway, running: Stack, model: str, named: str) -> None:
    """A frontend that does not say is of an earlier release, which had CosyVoice2 alone."""
    running.scripts["frontend"][0].model = model
    elevenlabs = (await served.http.get("/v1/models", headers={"xi-api-key": "any"})).json()
    openai_names = [one["id"] for one in (await served.http.get("/v1/models")).json()["data"]]
    found = {name: (await served.http.get(f"/v1/models/{name}")).status_code for name in ("cosyvoice2", "cosyvoice3")}
    assert (elevenlabs[0]["model_id"], openai_names[0]) == (named, named)
    assert {"tts-1", "gpt-4o-mini-tts"} <= set(openai_names)
    assert found == {name: 200 if name == named else 404 for name in found}
