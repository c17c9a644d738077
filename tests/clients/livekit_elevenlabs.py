"""LiveKit's plugin for ElevenLabs: speech whole, and over its shared WebSocket while the text is
being written, with words and their times; an interruption, a refusal.
"""

import asyncio
import logging

import aiohttp
from calls import Calls, Refused, address
from livekit.agents import APIConnectOptions, APIStatusError
from livekit.agents.tokenize import basic
from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
from livekit.plugins import elevenlabs

FIRST, SECOND = "Your table is booked for 7. ", "Please call us if you are late. "
PATIENT = APIConnectOptions(max_retry=8, retry_interval=2.0, timeout=60)
"""A machine with two cores refuses while it is busy with others, and takes long to speak."""


def service(url: str, session: aiohttp.ClientSession, **options: object) -> elevenlabs.TTS:
    return elevenlabs.TTS(base_url=f"{url}/v1", api_key="none", http_session=session, **options)


async def synthesized(tts: elevenlabs.TTS) -> float:
    """Seconds of audio of a whole text."""
    async with tts.synthesize(FIRST, conn_options=PATIENT) as stream:
        return sum([event.frame.duration async for event in stream])


async def streamed(tts: elevenlabs.TTS, *, wait: bool) -> tuple[float, list[tuple[str, float]]]:
    """Seconds of audio, and the words with their start times. wait: the second sentence is written
    when some of the first one is heard.
    """
    stream = tts.stream(conn_options=PATIENT)
    seconds, words, second = 0.0, [], not wait
    stream.push_text(FIRST)
    stream.push_text(SECOND if second else "Please ")
    if second:
        stream.end_input()
    async for event in stream:
        seconds += event.frame.duration
        timed = event.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, [])
        words += [(str(word).strip(), float(word.start_time)) for word in timed]
        if not second:
            second = True
            stream.push_text(SECOND.removeprefix("Please "))
            stream.end_input()
    await stream.aclose()
    return seconds, words


def check(seconds: float, words: list[tuple[str, float]]) -> str:
    """The words are those of the text, as they are spoken, inside the sound and in order."""
    text = " ".join(word for word, _ in words)
    assert text == "Your table is booked for seven. Please call us if you are late.", text
    starts = [start for _, start in words]
    assert starts == sorted(starts), starts
    assert starts[0] < 0.5, starts
    assert seconds / 2 < starts[-1] < seconds, (starts[-1], seconds)
    return f"{seconds:.1f} s, {len(words)} words up to {starts[-1]:.1f} s"


async def interrupted(tts: elevenlabs.TTS) -> None:
    """A stream is given up in mid-sentence; the same connection speaks on."""
    stream = tts.stream(conn_options=PATIENT)
    stream.push_text("This is interrupted long before its end. " * 6)
    await anext(stream)
    await stream.aclose()
    seconds, words = await streamed(tts, wait=False)
    check(seconds, words)


async def main() -> None:
    logging.disable()
    url, calls = address(), Calls.of("livekit-plugins-elevenlabs")
    async with aiohttp.ClientSession() as session:
        for encoding in ("pcm_24000", "mp3_22050_32", "mp3_44100_128"):
            with calls.tried(f"TTS.synthesize, {encoding}") as found:
                tts = service(url, session, encoding=encoding)
                seconds = await synthesized(tts)
                await tts.aclose()
                assert 1.0 < seconds < 5.0, seconds
                found.append(f"{seconds:.1f} s")
        for encoding, wait in (("pcm_24000", True), ("mp3_22050_32", True), ("pcm_24000", False)):
            how = "heard before the text is complete" if wait else "two sentences at once"
            with calls.tried(f"TTS.stream, {encoding}, {how}, words with times") as found:
                tts = service(url, session, encoding=encoding)
                found.append(check(*await streamed(tts, wait=wait)))
                await tts.aclose()
        with calls.tried("TTS.stream, words as they come (auto_mode=False)") as found:
            tts = service(
                url,
                session,
                encoding="pcm_24000",
                auto_mode=False,
                word_tokenizer=basic.WordTokenizer(ignore_punctuation=False),
            )
            found.append(check(*await streamed(tts, wait=True)))
            await tts.aclose()
        with calls.tried("TTS.stream, interrupted, then another on the same connection"):
            tts = service(url, session, encoding="pcm_24000")
            await interrupted(tts)
            await tts.aclose()
        with calls.tried("TTS.list_voices") as found:
            tts = service(url, session)
            found.append(f"{len(await tts.list_voices())} voices")
            await tts.aclose()
        with calls.tried("a voice that does not exist: APIStatusError"):
            tts = service(url, session, voice_id="nobody")
            with Refused(APIStatusError) as refusal:
                await synthesized(tts)
            await tts.aclose()
            assert refusal.error.status_code == 404
    calls.end()


if __name__ == "__main__":
    asyncio.run(main())
