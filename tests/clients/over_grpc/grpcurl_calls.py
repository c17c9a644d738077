"""grpcurl, which knows no contract beforehand: it asks the server's reflection for each."""

import argparse
import base64
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from calls import Calls, Refused
from guarded import Guarded, add_guarded

GRPCURL = Path(sys.executable).parent / "grpcurl"
SERVICES = ("nvidia.riva.tts.RivaSpeechSynthesis", "cosyvoice.CosyVoice")
SECONDS = 120


def grpcurl(*arguments: str, key: str = "") -> str:
    """What it prints. key: the variable KEY of its environment. Raises ValueError for a call that
    fails.
    """
    environ = os.environ | {"KEY": key}
    done = subprocess.run(
        [GRPCURL, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False, env=environ
    )
    if done.returncode:
        raise ValueError(done.stderr.strip()[:300])
    return done.stdout + done.stderr


def messages(output: str) -> list[dict[str, Any]]:
    decoder, found, output = json.JSONDecoder(), [], output.strip()
    while output:
        message, end = decoder.raw_decode(output)
        found.append(message)
        output = output[end:].strip()
    return found


def audio_of(output: str, field: str) -> str:
    audio = b"".join(base64.b64decode(message.get(field, "")) for message in messages(output))
    assert len(audio) > 24_000, "less than half a second"
    return f"{len(audio) / 48_000:.2f} s"


def secured(calls: Calls, folder: Path) -> None:
    """TLS with a client certificate, and a key that no list of processes shows."""
    guarded = Guarded.of(folder)

    def call(method: str, request: dict[str, Any], key: str = guarded.key, server: Guarded = guarded) -> str:
        files = ("-cacert", str(server.ca), "-cert", str(server.certificate), "-key", str(server.private_key))
        header = ("-expand-headers", "-H", "authorization: Bearer ${KEY}") if key else ()
        return grpcurl(*files, *header, "-d", json.dumps(request), server.address, method, key=key)

    riva, cosyvoice = SERVICES
    ours = "cosyserve.v1.SynthesisService/ListVoices"
    with calls.tried("client certificate and key: ListVoices, health"):
        assert messages(call(ours, {}))[0]["voices"]
        assert "SERVING" in call("grpc.health.v1.Health/Check", {})
    with calls.tried("client certificate and key: Riva, Synthesize") as found:
        spoken = call(f"{riva}/Synthesize", {"text": "It works.", "sample_rate_hz": 24_000})
        found.append(audio_of(spoken, "audio"))
    with calls.tried("client certificate and key: CosyVoice, Inference") as found:
        spoken = call(f"{cosyvoice}/Inference", {"sft_request": {"tts_text": "It works."}})
        found.append(audio_of(spoken, "ttsAudio"))
    for what, key in (("no key", ""), ("a wrong key", guarded.key[:-1] + "x")):
        with calls.tried(f"client certificate and {what}: Unauthenticated"):
            for method in (ours, f"{riva}/GetRivaSynthesisConfig", f"{cosyvoice}/Inference"):
                with Refused(ValueError) as refused:
                    call(method, {}, key)
                assert "Unauthenticated" in str(refused.error), method
    with calls.tried("a certificate of another authority and a key: no connection"), Refused(ValueError):
        call(ours, {}, server=Guarded.of(folder, folder / "stranger"))
    with calls.tried("a key, but no certificate: no connection"), Refused(ValueError):
        bearer = f"authorization: Bearer {guarded.key}"
        grpcurl("-cacert", str(guarded.ca), "-max-time", "10", "-H", bearer, guarded.address, ours)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("grpc", help="host:port of the orchestrator")
    add_guarded(parser)
    arguments = parser.parse_args()
    address: str = arguments.grpc
    version = re.search(r"v?(\d+\.\d+\.\d+)", grpcurl("-version"))
    calls = Calls("grpcurl", version[1] if version else "")

    def call(method: str, *requests: dict[str, Any]) -> str:
        return grpcurl("-plaintext", "-d", "".join(map(json.dumps, requests)), address, method)

    riva, cosyvoice = SERVICES
    with calls.tried("list, describe"):
        assert set(SERVICES) <= set(grpcurl("-plaintext", address, "list").split())
        assert "// A voice as" in grpcurl("-plaintext", address, "describe", "nvidia.riva.tts.SynthesizeSpeechRequest")
    with calls.tried("grpc.health.v1.Health/Check of each service"):
        for service in ("", *SERVICES):
            assert "SERVING" in call("grpc.health.v1.Health/Check", {"service": service})
    with calls.tried("Riva, GetRivaSynthesisConfig"):
        assert messages(call(f"{riva}/GetRivaSynthesisConfig", {}))[0]["modelConfig"]
    with calls.tried("Riva, Synthesize") as found:
        found.append(audio_of(call(f"{riva}/Synthesize", {"text": "It works.", "sample_rate_hz": 24_000}), "audio"))
    with calls.tried("Riva, SynthesizeOnline, two requests in one stream") as found:
        spoken = call(f"{riva}/SynthesizeOnline", {"text": "It works."}, {"text": "And it goes on."})
        found.append(audio_of(spoken, "audio"))
    with calls.tried("CosyVoice, Inference, sft_request") as found:
        told = {"sft_request": {"tts_text": "It works."}}
        found.append(audio_of(call(f"{cosyvoice}/Inference", told), "ttsAudio"))
    with calls.tried("a rate that there is not: InvalidArgument"):
        with Refused(ValueError) as refused:
            call(f"{riva}/Synthesize", {"text": "It works.", "sample_rate_hz": 4_000})
        assert "InvalidArgument" in str(refused.error)
        assert "allowed are 8000 to 48000" in str(refused.error)
    secured(calls, arguments.guarded)
    calls.end()


if __name__ == "__main__":
    main()
