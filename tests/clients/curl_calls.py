"""curl: every format, events, a voice made, used and deleted, refusals."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from calls import Calls, address
from decoders import FORMATS, check_length

TEXT = "It works."
MEDIA_TYPES = {
    "mp3": "audio/mpeg",
    "opus": "audio/ogg",
    "aac": "audio/aac",
    "flac": "audio/flac",
    "wav": "audio/wav",
    "pcm": "audio/pcm",
}


def curl(*arguments: str) -> tuple[int, str, bytes]:
    """Status, content type and body. curl itself tries again when the server is busy."""
    with tempfile.NamedTemporaryFile() as body:
        options = ["--silent", "--show-error", "--max-time", "90", "--retry", "8", "--output", body.name]
        written = ["--write-out", "%{http_code} %{content_type}"]
        done = subprocess.run(["curl", *options, *written, *arguments], capture_output=True, text=True, check=True)
        status, _, media_type = done.stdout.partition(" ")
        return int(status), media_type.partition(";")[0], Path(body.name).read_bytes()


def posted(url: str, **fields: Any) -> tuple[int, str, bytes]:
    body = json.dumps({"input": TEXT, "voice": "alloy", "seed": 7, **fields})
    return curl("--json", body, f"{url}/v1/audio/speech")


def formats(url: str, calls: Calls) -> bytes:
    """Returns the pcm."""
    pcm = b""
    for name in reversed(FORMATS):
        with calls.tried(f"POST /v1/audio/speech, {name}") as found:
            status, media_type, audio = posted(url, response_format=name)
            assert (status, media_type) == (200, MEDIA_TYPES[name]), (status, media_type, audio[:200])
            pcm = pcm or audio
            found.append(check_length(audio, name, pcm))
    with calls.tried("no response_format: mp3"):
        assert posted(url)[1] == "audio/mpeg"
    with calls.tried("stream_format sse, word_times"):
        status, media_type, body = posted(url, response_format="pcm", stream_format="sse", word_times=True)
        assert (status, media_type) == (200, "text/event-stream")
        lines = body.decode().split("\n\n")
        assert lines[-2:] == ["data: [DONE]", ""]
        spoken = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
        words = [word["word"] for event in spoken if event["type"] == "speech.audio.words" for word in event["words"]]
        assert words == ["It", "works"], words
    return pcm


def voices(url: str, calls: Calls) -> None:
    """A voice made of the server's own speech."""
    path = f"{url}/v1/audio/voices"
    with tempfile.NamedTemporaryFile(suffix=".wav") as recording, calls.tried("POST, use and DELETE /v1/audio/voices"):
        text = "This is what my voice sounds like when I read a sentence of some length."
        recording.write(posted(url, input=text, response_format="wav")[2])
        recording.flush()
        form = ("--form", f"audio_sample=@{recording.name};type=audio/wav", "--form", "name=Compatibility")
        status, _, body = curl(*form, "--form", "consent=made by the server", "--form", f"transcript={text}", path)
        assert status == 201, body
        name = json.loads(body)["id"]
        try:
            status, media_type, audio = posted(url, voice=name, response_format="wav")
            assert (status, media_type) == (200, "audio/wav"), audio[:200]
        finally:
            assert json.loads(curl("--request", "DELETE", f"{path}/{name}")[2])["deleted"]
        assert posted(url, voice=name)[0] == 404


def refusals(url: str, calls: Calls) -> None:
    for what, fields, status in (
        ("speed 9", {"speed": 9}, 400),
        ("an empty text", {"input": ""}, 400),
        ("a format that does not exist", {"response_format": "tape"}, 400),
        ("a voice that does not exist", {"voice": "nobody"}, 404),
    ):
        with calls.tried(f"{what}: {status}"):
            got, media_type, body = posted(url, **fields)
            assert (got, media_type) == (status, "application/json"), (got, media_type)
            assert json.loads(body)["error"].keys() >= {"message", "type", "param", "code"}


def main() -> None:
    url = address()
    version = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout.split()[1]
    calls = Calls("curl", version)
    formats(url, calls)
    voices(url, calls)
    refusals(url, calls)
    calls.end()


if __name__ == "__main__":
    sys.exit(main())
