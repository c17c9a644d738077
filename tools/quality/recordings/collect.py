"""Where the recordings come from: a model whose services are started for it, a running server, or a
folder.

What a server speaks is recorded with the silence at its ends, so that recordings of the same speech
tokens begin at the same sample.
"""

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.audio.encoding import from_pcm
from cosyserve.client import AsyncClient
from cosyserve.client.options import StreamOptions
from cosyserve.client.speech import Speech
from cosyserve.errors import NotFound
from cosyserve.host.supervision.supervisor import local_deployment
from cosyserve.load.player import listen
from tools.quality.recordings.recording import Recording, Sentence, read_recordings, voice_folders

_Speak = Callable[[AsyncClient, Sentence, str, int], Awaitable[Recording]]


@dataclass(frozen=True)
class Recordings:
    """One voice, each list in the order of the sentences. whole: under full attention; long_hops:
    streamed with as few cuts as possible; both empty when they were not asked for."""

    voice: str
    streamed: list[Recording]
    long_hops: Sequence[Recording] = ()
    whole: Sequence[Recording] = ()


@contextlib.asynccontextmanager
async def client_of(model: Path, server: str | None) -> AsyncIterator[AsyncClient]:
    """A client of `server`, or of the services of `model` while the block runs. Raises as
    local_deployment does.
    """
    async with contextlib.AsyncExitStack() as exits:
        if server is None:
            print(f"starting the services on {model}", file=sys.stderr)
            server = (await exits.enter_async_context(local_deployment(model))).address
        yield await exits.enter_async_context(AsyncClient(server))


async def voices_of(client: AsyncClient, wanted: Sequence[str] | None) -> list[str]:
    """The server's voices, or the wanted ones. Raises NotFound for one that the server does not
    have.
    """
    known = [voice.id for voice in await client.voices()]
    if missing := [voice for voice in wanted or () if voice not in known]:
        raise NotFound(f"the server has no voice {', '.join(missing)}; it has {', '.join(known)}")
    return list(wanted or known)


async def spoken(
    client: AsyncClient, voice: str, sentences: Sequence[Sentence], seed: int, *, offline_too: bool
) -> Recordings:
    """The sentences one after another, each with the same seed; with offline_too in the two other
    ways as well.
    """

    async def each(how: _Speak, name: str) -> list[Recording]:
        print(f"{voice}: speaking {len(sentences)} sentences {name}", file=sys.stderr)
        return [await how(client, sentence, voice, seed) for sentence in sentences]

    streamed = await each(stream, "streamed")
    if not offline_too:
        return Recordings(voice, streamed)
    return Recordings(voice, streamed, await each(stream_in_long_hops, "in long hops"), await each(whole, "as a whole"))


def from_folder(directory: Path, wanted: Sequence[str] | None, sentences: list[Sentence]) -> list[Recordings]:
    """Each voice of a directory of other recordings. Raises ValueError for a wanted voice
    without a folder, or an empty folder.
    """
    folders = voice_folders(directory)
    if missing := [voice for voice in wanted or () if voice not in folders]:
        raise ValueError(f"{directory} has no folder for {', '.join(missing)}; it has {', '.join(folders)}")
    return [Recordings(voice, read_recordings(folders[voice], sentences)) for voice in wanted or folders]


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

    heard = await listen(speech, play=keep)
    ends, total = [], 0
    for piece in pieces:
        total += len(piece) // speech.bytes_per_sample
        ends.append(total)
    return Recording(
        sentence,
        from_pcm(b"".join(pieces)),
        heard.header.sample_rate,
        tuple(ends[:-1]),
        heard.first_sound,
        heard.real_time_factor,
        heard.summary,
    )
