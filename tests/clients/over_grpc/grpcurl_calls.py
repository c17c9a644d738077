"""grpcurl, which knows no contract beforehand: it asks the server's reflection for each."""

import argparse
import base64
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from calls import Calls, Refused

GRPCURL = Path(sys.executable).parent / "grpcurl"
SERVICES = ("nvidia.riva.tts.RivaSpeechSynthesis", "cosyvoice.CosyVoice")
SECONDS = 120


def grpcurl(*arguments: str) -> str:
    """What it prints. Raises ValueError for a call that fails."""
    done = subprocess.run([GRPCURL, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False)
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


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("grpc", help="host:port of the orchestrator")
    address: str = parser.parse_args().grpc
    version = re.search(r"v?(\d+\.\d+\.\d+)", grpcurl("-version"))
    calls = Calls("grpcurl", version[1] if version else "")

    def call(method: str, *requests: dict[str, Any]) -> str:
        told = "".join(map(json.dumps, requests))
        return grpcurl("-plaintext", "-d", told, address, method)

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
    calls.end()


if __name__ == "__main__":
    main()
