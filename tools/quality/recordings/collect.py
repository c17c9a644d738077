"""Where the recordings come from: a model whose services are started for it, a running server, or a
folder.
"""

import contextlib
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cosyserve.client import AsyncClient
from cosyserve.errors import NotFound
from cosyserve.host.supervision.supervisor import local_deployment
from tools.quality.recordings import collect
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

    streamed = await each(collect.stream, "streamed")
    if not offline_too:
        return Recordings(voice, streamed)
    return Recordings(
        voice,
        streamed,
        await each(collect.stream_in_long_hops, "in long hops"),
        await each(collect.whole, "as a whole"),
    )


def from_folder(directory: Path, wanted: Sequence[str] | None, sentences: list[Sentence]) -> list[Recordings]:
    """Each voice of a directory of other recordings. Raises ValueError for a wanted voice
    without a folder, or an empty folder.
    """
    folders = voice_folders(directory)
    if missing := [voice for voice in wanted or () if voice not in folders]:
        raise ValueError(f"{directory} has no folder for {', '.join(missing)}; it has {', '.join(folders)}")
    return [Recordings(voice, read_recordings(folders[voice], sentences)) for voice in wanted or folders]
