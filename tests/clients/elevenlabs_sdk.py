"""ElevenLabs' SDK: speech whole, streamed, with the times of its characters, and over a WebSocket
while the text is being written; voices, models, refusals.

Its WebSocket speaks TLS whatever the address says, so the script puts a proxy with a certificate of
its own in front of the gateway.
"""

import asyncio
import base64
import os
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from calls import Calls, Refused, address
from elevenlabs import VoiceSettings
from elevenlabs.client import AsyncElevenLabs, ElevenLabs
from elevenlabs.core.api_error import ApiError

TEXT = "Your table is booked for 7. See you then."
LONG = (
    "Your table is booked. Please call us if you are late, or write to the kitchen. "
    "On Mondays we serve fish from the lake, with bread that was made in the morning. "
    "Children eat for half the price, and dogs find water beside the door. "
    "The last train leaves at midnight from the station behind the church. "
    "If it rains, take the path through the park, where old trees keep you dry."
)
VOICE, SEED = "21m00Tcm4TlvDq8ikWAM", 7


class TlsProxy:
    """Passes TLS connections to a port of this host on to the gateway, in a thread of its own."""

    def __init__(self, gateway: str) -> None:
        parts = urlsplit(gateway)
        self._target = parts.hostname, parts.port
        self._folder = tempfile.TemporaryDirectory()
        self._certificate, self._key = (Path(self._folder.name) / name for name in ("certificate.pem", "key.pem"))
        self._ready = threading.Event()
        self.port = 0

    def __enter__(self) -> "TlsProxy":
        subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "1"]
        key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(self._key)]
        command = ["openssl", "req", "-x509", *key, "-out", str(self._certificate), *subject]
        subprocess.run(command, check=True, capture_output=True)
        os.environ["SSL_CERT_FILE"] = str(self._certificate)
        threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True).start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        os.environ.pop("SSL_CERT_FILE")
        self._folder.cleanup()

    async def _serve(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self._certificate, self._key)
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0, ssl=context)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await server.serve_forever()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = await asyncio.open_connection(*self._target)
        await asyncio.gather(_copy(reader, there[1]), _copy(there[0], writer), return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    finally:
        writer.close()


def seconds(pcm: bytes) -> float:
    return len(pcm) / 2 / 24_000


def converted(client: ElevenLabs, output_format: str = "pcm_24000") -> bytes:
    pieces = client.text_to_speech.convert(VOICE, text=TEXT, seed=SEED, output_format=output_format)
    return b"".join(pieces)


def streamed_with_times(client: ElevenLabs) -> tuple[bytes, str, list[float]]:
    """Audio, characters and their start times."""
    audio, characters, starts = b"", "", []
    chunks = client.text_to_speech.stream_with_timestamps(VOICE, text=TEXT, seed=SEED, output_format="pcm_24000")
    for chunk in chunks:
        audio += base64.b64decode(chunk.audio_base_64)
        if chunk.alignment is not None:
            characters += "".join(chunk.alignment.characters)
            starts += chunk.alignment.character_start_times_seconds
    return audio, characters, starts


def realtime(url: str) -> bytes:
    """Audio of a text that is not ended before some of it is heard."""
    heard = threading.Event()

    def text() -> Iterator[str]:
        for word in LONG.split():
            yield f"{word} "
            if heard.wait(1.0):
                return
        raise AssertionError("no audio came before the text was complete")

    audio = b""
    client = ElevenLabs(base_url=url, api_key="none")
    for piece in client.text_to_speech.convert_realtime(VOICE, text=text(), output_format="pcm_24000"):
        heard.set()
        audio += piece
    return audio


async def asynchronous(url: str) -> bytes:
    client = AsyncElevenLabs(base_url=url, api_key="none")
    stream = client.text_to_speech.stream(VOICE, text=TEXT, seed=SEED, output_format="pcm_24000")
    return b"".join([piece async for piece in stream])


def main() -> None:
    url, calls = address(), Calls.of("elevenlabs")
    client = ElevenLabs(base_url=url, api_key="none")
    with calls.tried("voices.get_all, voices.search, voices.get") as found:
        voices = client.voices.get_all().voices
        assert [voice.voice_id for voice in client.voices.search().voices] == [voice.voice_id for voice in voices]
        assert client.voices.get(voices[0].voice_id).name == voices[0].name
        found.append(f"{len(voices)} voices")
    with calls.tried("models.list") as found:
        models = client.models.list()
        assert all(model.can_do_text_to_speech for model in models)
        assert {model.model_id for model in ElevenLabs(base_url=url).models.list()} == {m.model_id for m in models}
        found.append(f"{len(models)} models")
    whole = b""
    with calls.tried("text_to_speech.convert, pcm_24000") as found:
        whole = converted(client)
        assert 1.5 < seconds(whole) < 6.0, seconds(whole)
        assert converted(client) == whole, "the same seed gave other samples"
        found.append(f"{seconds(whole):.1f} s, the same again for one seed")
    for name in ("mp3_44100_128", "mp3_22050_32", "opus_48000_64", "wav_24000", "ulaw_8000", "alaw_8000"):
        with calls.tried(f"text_to_speech.convert, {name}") as found:
            found.append(f"{len(converted(client, name))} bytes")
    with calls.tried("text_to_speech.stream"):
        pieces = client.text_to_speech.stream(VOICE, text=TEXT, seed=SEED, output_format="pcm_24000")
        assert b"".join(pieces) == whole
    with calls.tried("AsyncElevenLabs, text_to_speech.stream"):
        assert asyncio.run(asynchronous(url)) == whole
    with calls.tried("text_to_speech.stream_with_timestamps") as found:
        audio, characters, starts = streamed_with_times(client)
        assert (audio, characters) == (whole, TEXT)
        assert starts == sorted(starts)
        found.append(f"{len(characters)} characters from {starts[0]:.2f} to {starts[-1]:.2f} s")
    with calls.tried("text_to_speech.convert_with_timestamps"):
        answer = client.text_to_speech.convert_with_timestamps(VOICE, text=TEXT, seed=SEED, output_format="pcm_24000")
        assert base64.b64decode(answer.audio_base_64) == whole
        assert answer.alignment is not None
        assert "".join(answer.alignment.characters) == TEXT
    realtime_call = "text_to_speech.convert_realtime, heard before the text is complete"
    with calls.tried(realtime_call) as found, TlsProxy(url) as proxy:
        audio = realtime(f"https://127.0.0.1:{proxy.port}")
        assert seconds(audio) > 2.0
        found.append(f"{seconds(audio):.1f} s")
    with calls.tried("voice_settings.speed"):
        settings = VoiceSettings(speed=1.2, stability=0.5, similarity_boost=0.7)
        faster = client.text_to_speech.convert(
            VOICE, text=TEXT, seed=SEED, output_format="pcm_24000", voice_settings=settings
        )
        assert len(b"".join(faster)) < 0.9 * len(whole)
    with calls.tried("a voice that does not exist: ApiError") as found:
        with Refused(ApiError) as refusal:
            list(client.text_to_speech.convert("nobody", text=TEXT))
        assert refusal.error.status_code == 404
        found.append(refusal.error.body["detail"]["status"])
    with calls.tried("an empty text: ApiError"):
        with Refused(ApiError) as refusal:
            list(client.text_to_speech.convert(VOICE, text=""))
        assert refusal.error.status_code == 400
    calls.end()


if __name__ == "__main__":
    main()
