"""Riva's Synthesize and its list of voices: our own speech in another contract."""

import asyncio
import itertools
import logging
from typing import Any

import grpc
import pytest

from cosyserve.audio.compressed import FileFormat, file_encoder
from cosyserve.audio.encoding import Encoding, OutputStream
from cosyserve.foreign import riva_pb2
from cosyserve.foreign import riva_tts_pb2 as riva
from cosyserve.v1 import audio_pb2, frontend_pb2, synthesis_pb2, warning_pb2
from services.orchestrator.riva import servicer
from tests.pipeline.calling import TEXT, abort_once, all_idle, busy, hold_back, hook, speak
from tests.pipeline.foreign.riva_calls import asked, online, stub
from tests.stacks.calls import refusal, until
from tests.stacks.scripted_stages import Stack, expected_audio, stack

WHOLE = expected_audio(TEXT)


async def test_24_khz_are_the_samples_of_our_own_service(running: Stack) -> None:
    configuration = {"seed": "7"}
    request = riva.SynthesizeSpeechRequest(text=TEXT, sample_rate_hz=24_000, custom_configuration=configuration)
    answer = await stub(running).Synthesize(request)
    assert answer.audio == (await speak(running, seed=7, sentence_pause_milliseconds=None))[0]
    setup = running.scripts["llm"][0].llm_setups
    half = len(setup) // 2
    assert [each.seed for each in setup[:half]] == [each.seed for each in setup[half:]]
    assert (answer.meta.text, list(answer.meta.words), answer.HasField("id")) == (TEXT, [], False)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050, 44_100, 48_000])
async def test_any_rate(running: Stack, rate: int) -> None:
    resampled = OutputStream(Encoding.LINEAR16, rate)
    answer = await stub(running).Synthesize(asked(sample_rate_hz=rate))
    assert answer.audio == resampled.feed(WHOLE) + resampled.finish()


@pytest.mark.parametrize(
    ("encoding", "rate", "file_format", "file_rate"),
    [
        ("OGGOPUS", 24_000, FileFormat.OPUS, 24_000),
        ("OGGOPUS", 22_050, FileFormat.OPUS, 24_000),
        ("OGGOPUS", 44_100, FileFormat.OPUS, 48_000),
        ("FLAC", 22_050, FileFormat.FLAC, 22_050),
    ],
)
async def test_compressed_encodings_are_whole_files(
    running: Stack, encoding: str, rate: int, file_format: FileFormat, file_rate: int
) -> None:
    answer = await stub(running).Synthesize(asked(encoding=riva_pb2.AudioEncoding.Value(encoding), sample_rate_hz=rate))
    resampled, encoder = OutputStream(sample_rate=file_rate), file_encoder(file_format, file_rate)
    assert answer.audio == encoder.encode(resampled.feed(WHOLE) + resampled.finish()) + encoder.finish()


@pytest.mark.parametrize("name", ["MULAW", "ALAW"])
async def test_telephone_encodings(running: Stack, name: str) -> None:
    answer = await stub(running).Synthesize(asked(encoding=riva_pb2.AudioEncoding.Value(name), sample_rate_hz=8_000))
    native = audio_pb2.AudioFormat(
        encoding=audio_pb2.AudioEncoding.Value(f"AUDIO_ENCODING_{name}"), sample_rate_hertz=8_000
    )
    assert answer.audio == (await speak(running, onset=synthesis_pb2.ONSET_NATURAL, audio_format=native))[0]
    assert len(answer.audio) == len(WHOLE) // 6


async def test_words_have_times_where_they_are_asked_for(running: Stack) -> None:
    for name in ("frontend", "llm"):
        running.scripts[name][0].timed = True
    without = await stub(running).Synthesize(asked())
    timed = await stub(running).Synthesize(asked(enable_word_time_offsets=True))
    assert not without.meta.words
    assert [word.word for word in timed.meta.words] == TEXT.split()
    # A sentence of the script is a word, of 200 ms for each letter.
    ends = [200 * letters for letters in itertools.accumulate(map(len, TEXT.split()))]
    assert [word.end_time for word in timed.meta.words] == ends
    assert [word.start_time for word in timed.meta.words] == [0, *ends[:-1]]


async def test_the_id_comes_back_and_metadata_say_how_it_was_spoken(running: Stack) -> None:
    call = stub(running).Synthesize(asked(configuration={"seed": "11"}, id=riva_pb2.RequestId(value="order 7")))
    assert (await call).id.value == "order 7"
    metadata = dict(await call.trailing_metadata())
    found = {key: metadata[key] for key in ("x-seed", "x-voice", "x-sample-rate", "x-synthetic-audio")}
    assert found == {"x-seed": "11", "x-voice": "anna", "x-sample-rate": "24000", "x-synthetic-audio": "true"}
    assert "x-warnings" not in metadata


async def test_warnings_come_as_metadata(running: Stack) -> None:
    async def analysis(request: Any, context: Any) -> Any:
        warning = warning_pb2.TextWarning(kind=warning_pb2.TextWarning.KIND_UNREADABLE, message="2 signs — left out")
        yield frontend_pb2.AnalyzeResponse(sentence=frontend_pb2.Sentence(index=0, token_ids=[4]), warnings=[warning])

    running.scripts["frontend"][0].analysis = analysis
    call = stub(running).Synthesize(asked(configuration={"exaggeration_factor": "1.5"}))
    assert (await call).audio
    said = dict(await call.trailing_metadata())["x-warnings"]
    assert said.startswith("custom_configuration: 1 unknown and without effect; known are seed, speed")
    assert said.endswith("; 2 signs ? left out")


async def test_a_recording_to_speak_like(running: Stack) -> None:
    data = riva.ZeroShotData(audio_prompt=bytes([1, 2, 3]), transcript="what was said", quality=20)
    await stub(running).Synthesize(asked(zero_shot_data=data, voice_name="Magpie-ZeroShot.Female-1"))
    (recording,) = running.scripts["frontend"][0].recordings
    assert (recording.audio, recording.transcript) == (bytes([1, 2, 3]), "what was said")
    assert running.scripts["llm"][0].llm_setups[0].prompt_speech_tokens == [1, 2, 3]


async def test_options_reach_the_stages(running: Stack) -> None:
    request = asked(
        configuration={"speed": "2.0", "max_sentence_characters": "50"},
        custom_dictionary="NVIDIA  ɛnˈvɪdiə,SQL  sequel",
        language_code="de-DE",
        voice_name="cosyserve.anna",
    )
    audio = (await stub(running).Synthesize(request)).audio
    (setup,) = running.scripts["frontend"][0].text_setups
    assert dict(setup.pronunciations) == {"NVIDIA": "/ipa:ɛnˈvɪdiə/", "SQL": "sequel"}
    assert (setup.language_code, setup.max_sentence_characters) == ("de-DE", 50)
    assert running.scripts["token2wav"][0].decode_setups[0].speed == 2.0
    assert audio


@pytest.mark.parametrize("language", ["", "en-US"])
async def test_what_clients_send_unasked_leaves_the_language_to_the_text(running: Stack, language: str) -> None:
    assert (await stub(running).Synthesize(asked(language_code=language))).audio == WHOLE
    assert running.scripts["frontend"][0].text_setups[0].language_code == ""


@pytest.mark.parametrize(
    ("fields", "code", "said"),
    [
        ({"sample_rate_hz": 7_999}, "INVALID_ARGUMENT", "sample_rate_hz is 7999, allowed are 8000 to 48000"),
        ({"encoding": riva_pb2.FLAC, "sample_rate_hz": 20_000}, "INVALID_ARGUMENT", "sample_rate_hz: flac cannot"),
        ({"encoding": 9}, "INVALID_ARGUMENT", "encoding is 9; allowed are LINEAR_PCM (1), FLAC (2), MULAW (3)"),
        ({"text": " . "}, "INVALID_ARGUMENT", "nothing to speak"),
        ({"language_code": "English, please"}, "INVALID_ARGUMENT", "is not a BCP-47 tag"),
        ({"voice_name": "cosyserve.nobody"}, "NOT_FOUND", "'nobody'"),
        ({"custom_dictionary": "NVIDIA ɛn"}, "INVALID_ARGUMENT", "custom_dictionary, entry 1"),
        ({"configuration": {"speed": "9"}}, "INVALID_ARGUMENT", "custom_configuration['speed'] is '9', allowed: 0.5"),
        ({"zero_shot_data": riva.ZeroShotData(quality=3)}, "INVALID_ARGUMENT", "audio_prompt is empty"),
        (
            {"zero_shot_data": riva.ZeroShotData(audio_prompt=b"RIFF", quality=41)},
            "INVALID_ARGUMENT",
            "zero_shot_data.quality is 41, allowed are 1 to 40",
        ),
    ],
)
async def test_a_wrong_request_is_refused_before_any_work(
    running: Stack, fields: dict[str, Any], code: str, said: str
) -> None:
    await refusal(stub(running).Synthesize(asked(**fields)), grpc.StatusCode[code], said)
    assert not running.scripts["llm"][0].calls


async def test_audio_that_no_message_holds_is_refused(running: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servicer, "_MOST_BYTES", len(WHOLE) - 1)
    await refusal(stub(running).Synthesize(asked()), grpc.StatusCode.INVALID_ARGUMENT, "use SynthesizeOnline")
    await all_idle(running)
    monkeypatch.setattr(servicer, "_MOST_BYTES", len(WHOLE))
    assert (await stub(running).Synthesize(asked())).audio == WHOLE


@pytest.mark.start(max_streams=1)
async def test_it_is_admitted_and_cancelled_as_our_own(running: Stack) -> None:
    hold_back(running)
    call = stub(running).Synthesize(asked())
    waiting = asyncio.ensure_future(call)
    await busy(running, "token2wav")
    error = await refusal(stub(running).Synthesize(asked()), grpc.StatusCode.RESOURCE_EXHAUSTED, "1 of 1 streams")
    assert any(key == "grpc-status-details-bin" for key, _ in error.trailing_metadata())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await all_idle(running)


@pytest.mark.parametrize("stage", ["llm", "token2wav"])
async def test_a_lost_replica_is_not_heard(stage: str) -> None:
    async with stack({stage: 2}) as running:
        hook(running, stage, abort_once(grpc.StatusCode.UNAVAILABLE, "gone", at=8))
        assert (await stub(running).Synthesize(asked())).audio == WHOLE
        assert sum(len(script.calls) for script in running.scripts[stage]) > 1


async def test_each_call_writes_one_line_of_the_log(running: Stack, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await stub(running).Synthesize(asked())
    await refusal(stub(running).Synthesize(asked(sample_rate_hz=1)))

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records if record.getMessage().startswith("request ")]

    await until(lambda: len(lines()) == 2)
    spoken, wrong = lines()
    assert " RivaSynthesize voice=anna audio=4." in spoken
    assert spoken.endswith("status=OK")
    assert " RivaSynthesize voice=- audio=0.00" in wrong
    assert wrong.endswith("status=INVALID_ARGUMENT")
    assert TEXT not in caplog.text


async def test_the_list_of_voices(running: Stack) -> None:
    answer = await stub(running).GetRivaSynthesisConfig(riva.RivaSynthesisConfigRequest())
    (config,) = answer.model_config
    assert config.model_name == "cosyserve"
    assert dict(config.parameters) == {
        "language_code": "und",
        "voice_name": "cosyserve",
        "subvoices": "anna:0",
        "sample_rate_hz": "24000",
    }
    same = await stub(running).GetRivaSynthesisConfig(riva.RivaSynthesisConfigRequest(model_name="cosyserve"))
    assert same == answer
    other = riva.RivaSynthesisConfigRequest(model_name="magpie")
    await refusal(stub(running).GetRivaSynthesisConfig(other), grpc.StatusCode.NOT_FOUND, "known: cosyserve")


async def test_requests_without_a_voice_share_a_list_of_voices(running: Stack) -> None:
    frontend = running.scripts["frontend"][0]
    for voice_name in ("", "", "Magpie-Multilingual.EN-US.Female-1"):
        await stub(running).Synthesize(asked("word", voice_name=voice_name))
    await online(running, [asked("word")])
    assert frontend.lists == 1
    # Who asks for the list gets what there is now.
    await stub(running).GetRivaSynthesisConfig(riva.RivaSynthesisConfigRequest())
    assert frontend.lists == 2
