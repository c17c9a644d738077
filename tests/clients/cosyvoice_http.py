"""CosyVoice's own FastAPI as its clients call it, with requests: forms by GET as the client of the
repository of CosyVoice sends them, files by POST as clients of servers built on it do.
"""

import io
import wave
from typing import Any

import requests
from calls import Calls, address

TEXT = "It works."
TRANSCRIPT = "This is what my voice sounds like when I read a sentence of some length."
SECONDS = 120
RATE = 24_000


def form(url: str, method: str, mode: str, recording: bytes = b"", **fields: str) -> requests.Response:
    files = [("prompt_wav", ("prompt_wav", recording, "application/octet-stream"))] if recording else None
    data = {"tts_text": TEXT, "seed": "7", **fields}
    return requests.request(method, f"{url}/inference_{mode}", data=data, files=files, stream=True, timeout=SECONDS)


def samples(response: requests.Response) -> bytes:
    """The body, read as CosyVoice's client reads it."""
    assert response.status_code == 200, response.text
    audio = b"".join(response.iter_content(chunk_size=16_000))
    assert len(audio) % 2 == 0
    assert len(audio) > RATE // 2, "less than a quarter of a second"
    return audio


def seconds(audio: bytes) -> str:
    return f"{len(audio) / 2 / RATE:.2f} s"


def speaker(url: str, calls: Calls) -> str:
    name = ""
    with calls.tried("GET /list_voices") as found:
        voices: dict[str, Any] = requests.get(f"{url}/list_voices", timeout=SECONDS).json()
        assert voices["count"] == len(voices["voices"]) > 0
        name = voices["voices"][0]
        found.append(f"{voices['count']} voices")
    return name


def of_the_server(url: str, calls: Calls, voice: str) -> bytes:
    """Returns a file to speak like."""
    audio = recording = b""
    with calls.tried("GET /inference_sft, samples") as found:
        audio = samples(form(url, "GET", "sft", spk_id=voice))
        found.append(seconds(audio))
    with calls.tried("POST /inference_sft, format=wav"):
        response = form(url, "POST", "sft", spk_id=voice, format="wav")
        with wave.open(io.BytesIO(response.content)) as file:
            assert file.readframes(file.getnframes()) == audio
        assert float(response.headers["X-Processing-Time"]) > 0
        assert float(response.headers["X-RTF"]) > 0
    with calls.tried("max_text_length"):
        parts = samples(form(url, "POST", "sft", spk_id=voice, tts_text=TRANSCRIPT, max_text_length="40"))
        whole = samples(form(url, "POST", "sft", spk_id=voice, tts_text=TRANSCRIPT, enable_smart_split="false"))
        assert parts != whole
    with calls.tried("a name of CosyVoice's speakers"):
        samples(form(url, "GET", "sft", spk_id="中文女"))
    with calls.tried("a recording for what follows"):
        recording = form(url, "POST", "sft", spk_id=voice, tts_text=TRANSCRIPT, format="wav").content
        assert recording.startswith(b"RIFF")
    return recording


def like_a_recording(url: str, calls: Calls, recording: bytes) -> None:
    with calls.tried("GET /inference_zero_shot, an upload") as found:
        found.append(seconds(samples(form(url, "GET", "zero_shot", recording, prompt_text=TRANSCRIPT))))
    with calls.tried("GET /inference_cross_lingual, an upload") as found:
        found.append(seconds(samples(form(url, "GET", "cross_lingual", recording))))


def as_told(url: str, calls: Calls, voice: str, recording: bytes) -> None:
    """A model that follows no instructions has to say so."""
    tried = (("instruct", b"", {"spk_id": voice}), ("instruct2", recording, {}))
    for mode, uploaded, fields in tried:
        with calls.tried(f"/inference_{mode}") as found:
            response = form(url, "POST", mode, uploaded, instruct_text="Speak slowly.<|endofprompt|>", **fields)
            if response.status_code == 400 and response.json()["code"] == "failed_precondition":
                found.append("refused, because the model follows no instructions")
            else:
                found.append(seconds(samples(response)))


def others(url: str, calls: Calls, voice: str) -> None:
    with calls.tried("POST /warmup_trt"):
        answer = requests.post(f"{url}/warmup_trt", data={"spk_id": voice}, timeout=SECONDS).json()
        assert (answer["code"], answer["audio_seconds"] > 0) == (0, True), answer
    with calls.tried("GET /performance_info") as found:
        figures = requests.get(f"{url}/performance_info", timeout=SECONDS).json()
        assert figures["requests"]["complete"] > 0
        found.append(f"first audio p50 {figures['first_audio_seconds']['p50']} s")
    with calls.tried("a wrong field is named"):
        response = form(url, "POST", "sft", spk_id=voice, speed="9")
        assert response.status_code == 422
        assert response.json()["detail"][0]["loc"] == ["body", "speed"]
    with calls.tried("an unknown speaker"):
        assert form(url, "POST", "sft", spk_id="nobody").status_code == 404


def main() -> None:
    url, calls = address(), Calls.of("requests")
    voice = speaker(url, calls)
    recording = of_the_server(url, calls, voice)
    like_a_recording(url, calls, recording)
    as_told(url, calls, voice, recording)
    others(url, calls, voice)
    calls.end()


if __name__ == "__main__":
    main()
