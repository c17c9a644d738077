"""NVIDIA's nvidia-riva-client, of before and after text can be streamed: whatever its methods of
speech synthesis can ask for, in the version that is installed.
"""

import argparse
import inspect
import json
import tempfile
import time
import urllib.request
import wave
from pathlib import Path
from typing import Any

import grpc
import riva.client
import riva.client.proto.riva_tts_pb2 as riva_tts
from calls import Calls, Refused
from decoders import RATE as DECODED_RATE
from decoders import decoded
from guarded import Guarded, add_guarded
from riva.client import AudioEncoding, SpeechSynthesisService

TEXT = "It works. The second sentence follows."
TRANSCRIPT = "This is what my voice sounds like when I read a sentence of some length."
RATES = (8_000, 16_000, 22_050, 24_000, 44_100, 48_000)
SEED = {"seed": "7"}
PCM = AudioEncoding.LINEAR_PCM
OPTIONS = inspect.signature(SpeechSynthesisService.synthesize_online).parameters
"""What this version can ask for."""


def by_http(url: str, seed: int, text: str = TEXT) -> bytes:
    """The samples of our own service, 24 kHz."""
    fields = {"input": text, "response_format": "pcm", "seed": seed}
    request = urllib.request.Request(
        f"{url}/v1/audio/speech", json.dumps(fields).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        body: bytes = response.read()
        return body


def seconds(audio: bytes, rate: int) -> str:
    assert len(audio) % 2 == 0
    assert len(audio) > rate, "less than half a second"
    return f"{len(audio) / 2 / rate:.2f} s"


def listed(service: SpeechSynthesisService, calls: Calls) -> str:
    """The full name of a voice, as the client's own list of voices prints it."""
    name = ""
    with calls.tried("GetRivaSynthesisConfig") as found:
        answer = service.stub.GetRivaSynthesisConfig(riva_tts.RivaSynthesisConfigRequest())
        names = [
            f"{model.parameters['voice_name']}.{subvoice.partition(':')[0]}"
            for model in answer.model_config
            for subvoice in model.parameters["subvoices"].split(",")
            if model.parameters["language_code"]
        ]
        name = names[0]
        found.append(f"{len(names)} voices, the first one {name}")
    return name


def whole(service: SpeechSynthesisService, calls: Calls, url: str, voice: str) -> None:
    with calls.tried("synthesize, 24 kHz: the samples of our own service for its seed"):
        call = service.synthesize(TEXT, sample_rate_hz=24_000, encoding=PCM, future=True)
        answer = call.result()
        metadata = dict(call.trailing_metadata())
        assert answer.meta.text == TEXT
        assert answer.audio == by_http(url, int(metadata["x-seed"]))
    with calls.tried("synthesize, its own rate, a voice by its full name") as found:
        rate = inspect.signature(service.synthesize).parameters["sample_rate_hz"].default
        found.append(f"{rate} Hz, {seconds(service.synthesize(TEXT, voice).audio, rate)}")
    with calls.tried("synthesize, OGGOPUS at its own rate") as found:
        opus = decoded(service.synthesize(TEXT, encoding=AudioEncoding.OGGOPUS).audio, "opus")
        found.append(seconds(opus, DECODED_RATE))
    with calls.tried("synthesize, FLAC, MULAW, ALAW") as found:
        flac = decoded(service.synthesize(TEXT, encoding=AudioEncoding.FLAC, sample_rate_hz=16_000).audio, "flac")
        found.append(seconds(flac, DECODED_RATE))
        for name in ("MULAW", "ALAW"):
            audio = service.synthesize(TEXT, encoding=AudioEncoding.Value(name), sample_rate_hz=8_000).audio
            assert len(audio) > 4_000
            found.append(f"{len(audio) / 8_000:.2f} s")
    with calls.tried("synthesize, a dictionary in IPA"):
        said = service.synthesize("Nike works.", custom_dictionary={"Nike": "ˈnaɪ.ki", "works": "wurks"})
        assert said.audio


def streamed(service: SpeechSynthesisService, calls: Calls) -> None:
    with calls.tried("synthesize_online, one text") as found:
        begun, first, audio = time.monotonic(), 0.0, b""
        for response in service.synthesize_online(TRANSCRIPT, sample_rate_hz=24_000, encoding=PCM):
            first = first or time.monotonic() - begun
            audio += response.audio
        total = time.monotonic() - begun
        assert first < total
        found.append(seconds(audio, 24_000))
    with calls.tried("synthesize_online, cancelled") as found:
        call: Any = service.synthesize_online(" ".join([TRANSCRIPT] * 20), sample_rate_hz=24_000)
        heard = len(next(call).audio)
        call.cancel()
        with Refused(grpc.RpcError) as refused:
            for response in call:
                heard += len(response.audio)
        assert refused.error.code() is grpc.StatusCode.CANCELLED
        found.append(f"{heard / 48_000:.1f} s heard")


def prompted(service: SpeechSynthesisService, calls: Calls) -> None:
    if "zero_shot_audio_prompt_file" not in OPTIONS:
        return
    with tempfile.TemporaryDirectory() as folder:
        prompt = Path(folder) / "prompt.wav"
        with wave.open(str(prompt), "wb") as file:
            file.setparams((1, 2, 44_100, 0, "NONE", ""))
            file.writeframes(service.synthesize(TRANSCRIPT, sample_rate_hz=44_100).audio)
        with calls.tried("synthesize, a recording to speak like and its transcript") as found:
            audio = service.synthesize(
                TEXT,
                "Magpie-ZeroShot.Female-1",
                sample_rate_hz=24_000,
                zero_shot_audio_prompt_file=prompt,
                zero_shot_transcript=TRANSCRIPT,
            ).audio
            found.append(seconds(audio, 24_000))
        with calls.tried("synthesize_online, a recording to speak like") as found:
            pieces = service.synthesize_online(TEXT, sample_rate_hz=24_000, zero_shot_audio_prompt_file=prompt)
            found.append(seconds(b"".join(piece.audio for piece in pieces), 24_000))
        with calls.tried("a quality that there is not: INVALID_ARGUMENT"):
            with Refused(grpc.RpcError) as refused:
                service.synthesize(TEXT, zero_shot_audio_prompt_file=prompt, zero_shot_quality=41)
            _require(refused, grpc.StatusCode.INVALID_ARGUMENT)


def newer(service: SpeechSynthesisService, calls: Calls, url: str) -> None:
    if "custom_configuration" not in OPTIONS:
        return
    seeded: dict[str, Any] = {"sample_rate_hz": 24_000, "custom_configuration": SEED}
    ours = by_http(url, 7)
    with calls.tried("synthesize, custom_configuration seed: the samples of our own service"):
        assert service.synthesize(TEXT, **seeded).audio == ours
    with calls.tried("synthesize_online, one text, seed: the samples of our own service"):
        assert b"".join(piece.audio for piece in service.synthesize_online(TEXT, **seeded)) == ours
    with calls.tried("synthesize_online, a list of sentences, seed: the samples of our own service"):
        sentences = ["It works.", "The second sentence follows."]
        assert b"".join(piece.audio for piece in service.synthesize_online(sentences, **seeded)) == ours
    with calls.tried("synthesize_online, a list of words, seed: the samples of our own service"):
        pieces = service.synthesize_online(TEXT.split(), **seeded)
        assert b"".join(piece.audio for piece in pieces) == ours
    with calls.tried("synthesize_online at 8, 16, 22.05, 24, 44.1 and 48 kHz") as found:
        lengths = []
        for rate in RATES:
            pieces = service.synthesize_online(TEXT, sample_rate_hz=rate, custom_configuration=SEED)
            lengths.append(sum(len(piece.audio) for piece in pieces) / 2 / rate)
        assert max(lengths) - min(lengths) < 0.001, lengths
        found.append(f"each {lengths[0]:.2f} s")
    with calls.tried("custom_configuration speed 1.5") as found:
        fast = service.synthesize(TEXT, sample_rate_hz=24_000, custom_configuration={"speed": "1.5"}).audio
        assert len(fast) < 0.9 * len(ours)
        found.append(seconds(fast, 24_000))
    with calls.tried("custom_configuration speed 9: INVALID_ARGUMENT"):
        with Refused(grpc.RpcError) as refused:
            service.synthesize(TEXT, custom_configuration={"speed": "9"})
        _require(refused, grpc.StatusCode.INVALID_ARGUMENT)
    with calls.tried("custom_configuration of another server: spoken, with a warning"):
        call = service.synthesize(TEXT, custom_configuration={"exaggeration_factor": "1.5"}, future=True)
        assert call.result().audio
        assert "custom_configuration" in dict(call.trailing_metadata())["x-warnings"]


def timed(service: SpeechSynthesisService, calls: Calls) -> None:
    if "enable_word_time_offsets" not in OPTIONS:
        return
    for name in ("synthesize", "synthesize_online"):
        with calls.tried(f"{name}, enable_word_time_offsets") as found:
            said = getattr(service, name)(TEXT, sample_rate_hz=24_000, enable_word_time_offsets=True)
            answers = [said] if name == "synthesize" else list(said)
            words = [word for answer in answers for word in answer.meta.words]
            milliseconds = sum(len(answer.audio) for answer in answers) / 48
            assert [word.word.lower() for word in words] == TEXT.lower().replace(".", "").split(), words
            starts = [word.start_time for word in words]
            assert starts == sorted(starts)
            assert milliseconds / 2 < words[-1].end_time <= milliseconds + 40
            found.append(f"{len(words)} words up to {words[-1].end_time / 1000:.2f} s")


def refusals(service: SpeechSynthesisService, calls: Calls) -> None:
    wrong: tuple[tuple[str, grpc.StatusCode, dict[str, Any]], ...] = (
        ("a voice that does not exist", grpc.StatusCode.NOT_FOUND, {"voice_name": "nobody"}),
        ("4 kHz", grpc.StatusCode.INVALID_ARGUMENT, {"sample_rate_hz": 4_000}),
        ("no language tag", grpc.StatusCode.INVALID_ARGUMENT, {"language_code": "English, please"}),
        ("an empty text", grpc.StatusCode.INVALID_ARGUMENT, {"text": ""}),
    )
    for what, code, options in wrong:
        for name in ("synthesize", "synthesize_online"):
            with calls.tried(f"{name}, {what}: {code.name}"):
                with Refused(grpc.RpcError) as refused:
                    said = getattr(service, name)(**{"text": TEXT, **options})
                    assert name == "synthesize" or list(said)
                _require(refused, code)


def _require(refused: Refused[grpc.RpcError], code: grpc.StatusCode) -> None:
    error: Any = refused.error
    assert error.code() is code, error
    assert error.details()


def secured(calls: Calls, guarded: Guarded) -> None:
    def with_key(key: str) -> SpeechSynthesisService:
        metadata = [["authorization", f"Bearer {key}"]]
        files = (str(guarded.certificate), str(guarded.private_key))
        return SpeechSynthesisService(riva.client.Auth(str(guarded.ca), True, guarded.address, metadata, *files))

    with calls.tried("TLS, a client certificate and a key: synthesize, synthesize_online") as found:
        service = with_key(guarded.key)
        found.append(seconds(service.synthesize(TEXT, sample_rate_hz=24_000).audio, 24_000))
        pieces = service.synthesize_online(TEXT, sample_rate_hz=24_000)
        found.append(seconds(b"".join(piece.audio for piece in pieces), 24_000))
    with calls.tried("TLS, a client certificate and a wrong key: UNAUTHENTICATED"):
        with Refused(grpc.RpcError) as refused:
            with_key("wrong").synthesize(TEXT)
        _require(refused, grpc.StatusCode.UNAUTHENTICATED)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("grpc", help="host:port of the orchestrator")
    parser.add_argument("http", help="of the gateway, such as http://127.0.0.1:8080")
    add_guarded(parser)
    arguments = parser.parse_args()
    calls = Calls.of("nvidia-riva-client")
    service = SpeechSynthesisService(riva.client.Auth(uri=arguments.grpc))
    whole(service, calls, arguments.http, listed(service, calls))
    streamed(service, calls)
    prompted(service, calls)
    newer(service, calls, arguments.http)
    timed(service, calls)
    refusals(service, calls)
    secured(calls, Guarded.of(arguments.guarded))
    calls.end()


if __name__ == "__main__":
    main()
