"""Creating and storing voices over real gRPC: one frontend with the real networks of the bundled
model.
"""

import asyncio
import base64
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import hypothesis
import numpy as np
import pytest

from cosyserve.audio.wav import wav_header
from cosyserve.rpc.calls import retry_delay
from cosyserve.v1 import frontend_pb2 as pb
from cosyserve.v1 import voice_pb2
from services.frontend.settings import FrontendSettings
from tests.contract.frontend.frontend_calls import served
from tests.fuzz.strategies import LIMITS, damaged
from tests.fuzz.upload_seeds import seeds, voiced
from tests.stacks.calls import refusal, refused
from tests.stacks.up_process import DEMO, TINY

pytestmark = pytest.mark.start(model=DEMO, normalizer="none", voices_url="voices")
FILES = seeds()
GOOD = FILES["pcm16.wav"]
INVALID, THERE, MISSING = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.ALREADY_EXISTS, grpc.StatusCode.NOT_FOUND
WRONG_STATE, FULL = grpc.StatusCode.FAILED_PRECONDITION, grpc.StatusCode.RESOURCE_EXHAUSTED


def draft(audio: bytes = GOOD, voice_id: str = "me", **fields: Any) -> pb.FrontendServiceCreateVoiceRequest:
    return pb.FrontendServiceCreateVoiceRequest(draft=voice_pb2.VoiceDraft(id=voice_id, audio=audio, **fields))


def wave(samples: Any, rate: int) -> bytes:
    data = (np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()
    return wav_header(rate, len(data) // 2) + data


async def test_a_voice_from_the_cradle_to_the_grave(stub: Any) -> None:
    made = (
        await stub.CreateVoice(
            draft(
                transcript="A little sound.",
                language_code="en-GB",
                provenance="made by the test itself",
                metadata=voice_pb2.VoiceMetadata(display_name="Me", description="a test", labels={"team": "a"}),
            )
        )
    ).voice
    assert (made.summary.id, made.summary.display_name, made.description) == ("me", "Me", "a test")
    assert (made.transcript, made.provenance, made.summary.language_code) == (
        "A little sound.",
        "made by the test itself",
        "en-GB",
    )
    assert not made.summary.is_preset
    assert made.summary.create_time.ToSeconds() > 1_700_000_000
    assert (await stub.DescribeVoice(pb.DescribeVoiceRequest(id="me"))).voice == made
    voice = (await stub.GetVoice(pb.GetVoiceRequest(id="me"))).voice
    assert voice.content_hash == made.summary.content_hash
    assert len(voice.prompt_mel) == 4 * 80 * 2 * len(voice.prompt_speech_tokens)
    assert voice.prompt_text_ids
    assert made.summary.prompt_seconds == len(voice.prompt_speech_tokens) / 25

    request = pb.FrontendServiceUpdateVoiceRequest(id="me", metadata=voice_pb2.VoiceMetadata(display_name="You"))
    request.update_mask.paths.append("display_name")
    changed = (await stub.UpdateVoice(request)).voice
    assert (changed.summary.display_name, changed.description, dict(changed.summary.labels)) == (
        "You",
        "a test",
        {"team": "a"},
    )
    assert changed.summary.content_hash == made.summary.content_hash

    await stub.DeleteVoice(pb.FrontendServiceDeleteVoiceRequest(id="me"))
    for gone in (
        stub.GetVoice(pb.GetVoiceRequest(id="me")),
        stub.DescribeVoice(pb.DescribeVoiceRequest(id="me")),
        stub.DeleteVoice(pb.FrontendServiceDeleteVoiceRequest(id="me")),
        stub.UpdateVoice(pb.FrontendServiceUpdateVoiceRequest(id="me")),
    ):
        await refusal(gone, MISSING)


async def test_a_cut_prompt_is_offered_with_what_it_gains(stub: Any) -> None:
    recording = wave(np.tile(LOUD, 4)[: RATE * 29 // 10], RATE)
    whole = (await stub.CreateVoice(draft(recording, "whole"))).voice
    cut = (await stub.CreateVoice(draft(recording, "cut", cut_prompt=True))).voice
    assert cut.tokens_before_sound == cut.tokens_before_sound_if_cut == whole.tokens_before_sound_if_cut == 23
    assert whole.tokens_before_sound > 23
    described = [
        (await stub.DescribeVoice(pb.DescribeVoiceRequest(id="whole", first_hop_tokens=tokens))).voice
        for tokens in (20, 18)
    ]
    assert [(each.tokens_before_sound, each.tokens_before_sound_if_cut) for each in described] == [(23, 23), (21, 23)]
    wrong = stub.DescribeVoice(pb.DescribeVoiceRequest(id="whole", first_hop_tokens=26))
    await refusal(wrong, grpc.StatusCode.INVALID_ARGUMENT, "first_hop_tokens is 26, allowed 0 to 25")
    one, other = [(await stub.GetVoice(pb.GetVoiceRequest(id=name))).voice for name in ("whole", "cut")]
    assert one.prompt_speech_tokens == other.prompt_speech_tokens
    assert one.prompt_mel.endswith(other.prompt_mel)
    shown = len(other.prompt_mel) // 640
    assert shown < len(one.prompt_mel) // 640 == len(one.prompt_speech_tokens)
    assert (shown + 20) % 25 == 0
    read = pb.ReadRecordingRequest(recording=voice_pb2.PromptRecording(audio=recording, cut_prompt=True))
    assert (await stub.ReadRecording(read)).voice.prompt_mel == other.prompt_mel


async def test_every_kind_of_file_becomes_a_voice(stub: Any) -> None:
    for name, data in FILES.items():
        made = (await stub.CreateVoice(draft(data, ""))).voice.summary
        assert made.id.startswith("voice-"), name
        assert 0.9 < made.prompt_seconds < 1.3, name


RATE = 24_000
LOUD = voiced(RATE)


REFUSED = (
    (draft(b""), "audio has 0 bytes, allowed 1 to 10485760"),
    (draft(b"<html>"), "is neither WAV, FLAC, MP3 nor Ogg"),
    (draft(GOOD[:-100]), "the WAV file is cut off: its data at byte 36 has 55200 bytes, of which 55100 are there"),
    (
        draft(wave(LOUD[:20_000], RATE)),
        "the recording lasts 0.83 s (20000 samples at 24000 a second), allowed 1 to 30 s",
    ),
    (
        draft(wave(np.tile(LOUD, 27), RATE)),
        "the recording lasts 31.05 s (745200 samples at 24000 a second), allowed 1 to 30 s",
    ),
    (
        draft(wave(LOUD * 0, RATE)),
        "the recording is silent: its loudest 0.1 s has a root mean square of 0.00000, allowed from 0.003",
    ),
    (draft(wave(LOUD * 20, RATE)), "the recording is clipped: "),
    (
        draft(wave(voiced(8_000), 8_000)),
        "the recording has a sample rate of 8000, allowed 16000 to 192000 in steps of 50",
    ),
    (draft(wave(np.concatenate([LOUD * 0, LOUD[:12_000], LOUD * 0]), RATE)), "the recording is too short: "),
    (
        draft(transcript="all this was never said within so little time, was it now"),
        "the transcript is implausible: about ",
    ),
    (draft(transcript="你好"), "transcript holds nothing that this model can read"),
    (draft(transcript="a" * 1001), "transcript has 1001 characters, allowed at most 1000"),
    (draft(provenance="a" * 2001), "provenance has 2001 characters, allowed at most 2000"),
    (draft(language_code="en_US"), "language_code is 'en_US'"),
    (
        draft(voice_id="../../etc/passwd"),
        "id is '../../etc/passwd' (16 characters), expected 1 to 64 characters out of A-Z a-z 0-9 _ . -",
    ),
    (draft(voice_id="a" * 65), "(65 characters), expected"),
    (draft(request_id="a b"), "request_id is not"),
    (
        draft(metadata=voice_pb2.VoiceMetadata(display_name="n" * 129)),
        "metadata.display_name has 129 characters, allowed at most 128",
    ),
)


async def test_what_is_refused_and_leaves_nothing(stub: Any, tmp_path: Path) -> None:
    for request, said in REFUSED:
        await refusal(stub.CreateVoice(request), INVALID, said)
    assert files_below(tmp_path) == []


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


async def test_an_id_is_given_once_unless_the_request_is_the_same(stub: Any) -> None:
    first = (await stub.CreateVoice(draft(request_id="r1"))).voice
    assert (await stub.CreateVoice(draft(request_id="r1"))).voice == first
    await refusal(stub.CreateVoice(draft(request_id="r2")), THERE)
    await refusal(stub.CreateVoice(draft()), THERE)
    assert await refused(stub.CreateVoice(draft(voice_id="af_heart"))) == (
        THERE,
        "there is a voice 'af_heart' already, which comes with the model",
    )


async def test_presets_stay_as_they_are(stub: Any) -> None:
    for change in (
        stub.DeleteVoice(pb.FrontendServiceDeleteVoiceRequest(id="af_heart")),
        stub.UpdateVoice(pb.FrontendServiceUpdateVoiceRequest(id="af_heart")),
    ):
        assert await refused(change) == (
            WRONG_STATE,
            "the voice 'af_heart' comes with the model and is neither changed nor deleted",
        )
    shown = (await stub.DescribeVoice(pb.DescribeVoiceRequest())).voice
    assert (shown.summary.id, shown.summary.is_preset, shown.summary.is_default) == ("af_heart", True, True)
    assert not shown.summary.HasField("create_time")


async def test_pages(stub: Any) -> None:
    for number in range(4):
        await stub.CreateVoice(draft(voice_id=f"v{number}"))
    result, token = [], ""
    for _ in range(3):
        page = await stub.ListVoices(pb.FrontendServiceListVoicesRequest(page_size=2, page_token=token))
        result += [voice.id for voice in page.voices]
        token = page.next_page_token
    assert (result, token) == (["af_heart", "am_michael", "v0", "v1", "v2", "v3"], "")
    assert len((await stub.ListVoices(pb.FrontendServiceListVoicesRequest())).voices) == 6
    for bad in (
        {"page_size": -1},
        {"page_size": 1001},
        {"page_token": "?"},
        {"page_token": base64.b64encode(b"\xff").decode()},
    ):
        await refusal(stub.ListVoices(pb.FrontendServiceListVoicesRequest(**bad)), INVALID)


async def test_a_mask_of_other_fields_is_refused(stub: Any) -> None:
    await stub.CreateVoice(draft())
    request = pb.FrontendServiceUpdateVoiceRequest(id="me")
    request.update_mask.paths.append("transcript")
    await refusal(stub.UpdateVoice(request), INVALID)
    await refusal(stub.UpdateVoice(pb.FrontendServiceUpdateVoiceRequest()), INVALID)
    await refusal(stub.DeleteVoice(pb.FrontendServiceDeleteVoiceRequest(id="x" * 129)), INVALID)


@pytest.mark.start(max_voice_makings=1, max_voices=2)
async def test_too_many_at_once_and_too_many_in_all(stub: Any) -> None:
    long = wave(np.tile(LOUD, 20), RATE)
    answers = await asyncio.gather(
        *(stub.CreateVoice(draft(long, f"v{number}")) for number in range(3)), return_exceptions=True
    )
    errors = [answer for answer in answers if isinstance(answer, grpc.aio.AioRpcError)]
    assert len(errors) == 2
    assert {error.code() for error in errors} == {FULL}
    assert all(retry_delay(error) == 2.0 for error in errors)
    await stub.CreateVoice(draft(voice_id="w"))
    assert await refused(stub.CreateVoice(draft(voice_id="x"))) == (
        FULL,
        "there are 2 voices, allowed are 2; delete some first",
    )


@pytest.mark.start(max_tenant_voices=1)
async def test_a_tenant_has_no_more_than_its_own_number(stub: Any) -> None:
    def made(voice_id: str, owner: str) -> Any:
        request = draft(voice_id=voice_id)
        request.owner = owner
        return stub.CreateVoice(request)

    await made("a", "green")
    assert await refused(made("b", "green")) == (
        FULL,
        "this tenant has at least 1 voices, allowed are 1; delete some first",
    )
    assert [(await made(name, owner)).voice.summary.owner for name, owner in (("b", "blue"), ("c", ""), ("d", ""))] == [
        "blue",
        "",
        "",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"voices_url": None}, "this server stores no voices: COSYSERVE_FRONTEND_VOICES_URL is not set"),
        (
            {"model": TINY},
            "no voice can be made: the model directory has no speech tokenizer",
        ),
    ],
)
async def test_where_no_voice_can_be_created(settings: FrontendSettings, changes: dict[str, Any], said: str) -> None:
    async with served(replace(settings, **changes)) as stub:
        await refusal(stub.CreateVoice(draft()), WRONG_STATE, said)


async def test_a_failing_storage_is_reported_and_the_presets_stay_available(stub: Any, tmp_path: Path) -> None:
    await stub.CreateVoice(draft())
    (shelf,) = (tmp_path / "voices").iterdir()
    shelf.rename(tmp_path / "elsewhere")
    shelf.write_text("in the way")
    await refusal(stub.CreateVoice(draft(voice_id="other")), FULL, "the voice storage could not")
    assert (await stub.GetVoice(pb.GetVoiceRequest(id="af_heart"))).voice.id == "af_heart"


async def test_forty_mutated_uploads_over_grpc(stub: Any) -> None:
    files, outcomes = list[bytes](), []

    @hypothesis.settings(LIMITS, max_examples=40)
    @hypothesis.given(damaged(list(FILES.values())))
    def draw(file: bytes) -> None:
        files.append(file)

    draw()
    for file in files:
        try:
            await stub.CreateVoice(draft(file, ""))
            outcomes.append("made")
        except grpc.aio.AioRpcError as error:
            outcomes.append(error.code().name)
    assert set(outcomes) == {"made", "INVALID_ARGUMENT"}
