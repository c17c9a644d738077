"""A list spoken by a running server, sentence after sentence, with the silence at its ends: so that
recordings of the same speech tokens begin at the same sample."""

from cosyserve.audio.encoding import from_pcm
from cosyserve.client import AsyncClient
from cosyserve.client.options import StreamOptions
from cosyserve.client.playback import hear
from cosyserve.client.speech import Speech
from tools.quality.recordings.recording import Recording, Sentence


async def stream(client: AsyncClient, sentence: Sentence, voice: str, seed: int) -> Recording:
    """Streamed with the default settings but for the onset."""
    return await _listen(client.synthesize(sentence.text, voice=voice, seed=seed, onset="natural"), sentence)


async def stream_in_long_hops(client: AsyncClient, sentence: Sentence, voice: str, seed: int) -> Recording:
    """Streamed with as few cuts as the server allows: the samples must be those of `stream`."""
    hops: StreamOptions = {"first_hop_tokens": 100, "growth": "exponential", "max_hop_tokens": 400}
    speech = client.synthesize(sentence.text, voice=voice, seed=seed, onset="natural", **hops)
    return await _listen(speech, sentence)


async def whole(client: AsyncClient, sentence: Sentence, voice: str, seed: int) -> Recording:
    """At once, under full attention: the same speech tokens as `stream`, decoded with all their
    context.
    """
    audio, header, summary = await client.synthesize_unary(sentence.text, voice=voice, seed=seed, onset="natural")
    return Recording(sentence, from_pcm(audio), header.sample_rate, summary=summary)


async def _listen(speech: Speech, sentence: Sentence) -> Recording:
    pieces: list[bytes] = []

    async def keep(audio: bytes) -> None:
        pieces.append(audio)

    heard = await hear(speech, keep)
    ends, total = [], 0
    for piece in pieces:
        total += len(piece) // speech.bytes_per_sample
        ends.append(total)
    return Recording(
        sentence,
        from_pcm(b"".join(pieces)),
        heard.header.sample_rate,
        tuple(ends[:-1]),
        heard.first_sound_seconds,
        heard.real_time_factor,
        heard.summary,
    )
