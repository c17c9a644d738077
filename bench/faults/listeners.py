"""Listeners that come by chance, half through our client, half over HTTP: whether each hears the
whole speech, the same as without any fault, and for how long its player has nothing to play.
"""

import asyncio
import contextlib
import hashlib
import random
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field

from bench.load.http_caller import HttpCaller
from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError
from cosyserve.load.player import BYTES_PER_SAMPLE, Player
from cosyserve.spec import SAMPLE_RATE
from cosyserve.tasks import Changes

BUFFER_SECONDS = 0.04
CLIENT, HTTP = "client", "http"
_CONNECT_SECONDS = 60.0
"""For which a listener over HTTP tries to connect where no gateway takes connections."""
_TRY_AGAIN_SECONDS = 0.1
_PATIENCE_SECONDS = 60.0
_LONGEST_SECONDS = 120.0
"""Of one request; one that takes longer has failed."""


@dataclass(frozen=True)
class Speech:
    """A text with a seed. digest: of its samples without any fault."""

    text: str
    seed: int
    digest: str


@dataclass(eq=False)
class Listener:
    """One request and what became of it. Times in seconds on the clock of the event loop.

    row: number of the fault that it belongs to. hit: whether it was under way at that moment. met:
    the same, or it came while the fault lasted. gateway: whom it asked over HTTP. seconds: until
    its end. audio: seconds of it. cut: the gateway's connection was lost, and raw HTTP cannot
    resume.
    """

    way: str
    begun: float
    row: int
    met: bool = False
    hit: bool = False
    gateway: str = ""
    dry: float = 0.0
    first: float = 0.0
    seconds: float = 0.0
    audio: float = 0.0
    resumed: int = 0
    identical: bool = False
    cut: bool = False
    error: str = ""


@dataclass
class Load:
    """gateways: the addresses that the gateway's name has now."""

    client: AsyncClient
    gateways: Callable[[], Sequence[str]]
    speeches: Sequence[Speech] = ()
    row: int = 0
    lasts: bool = False
    """Whether a fault lasts now."""
    all: list[Listener] = field(default_factory=list)
    changes: Changes = field(default_factory=Changes)
    """Each request that begins."""
    under_way: set[Listener] = field(default_factory=set)

    async def learn(self, texts: Sequence[str], seeds: Sequence[int]) -> None:
        """Hear each text with each seed while nothing disturbs it, all texts at once."""

        async def heard(text: str, seed: int) -> Speech:
            audio = await self.client.synthesize(text, seed=seed, timeout=_LONGEST_SECONDS).read()
            return Speech(text, seed, hashlib.sha256(audio).hexdigest())

        self.speeches = [
            speech for seed in seeds for speech in await asyncio.gather(*(heard(text, seed) for text in texts))
        ]

    def fault(self) -> int:
        """A fault happens now, and lasts until `over`; returns how many requests are under way.
        Those that have met another one before still belong to that.
        """
        self.lasts = True
        for listener in self.under_way:
            if not listener.met:
                listener.met, listener.hit, listener.row = True, True, self.row
        return len(self.under_way)

    def over(self) -> None:
        """The fault is over: what comes now may meet the next one."""
        self.lasts = False

    async def until_under_way(self, least: int) -> None:
        """Return when so many requests are under way, or after a minute."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self.changes.wait_for(lambda: len(self.under_way) >= least)

    @contextlib.asynccontextmanager
    async def arriving(self, per_second: float) -> AsyncIterator[None]:
        """Requests come while the block runs, and are heard out at its end."""
        over = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for place, way in enumerate((CLIENT, HTTP)):
                group.create_task(self._arrive(way, per_second / 2, place, over, group))
            try:
                yield
            finally:
                over.set()

    async def _arrive(
        self, way: str, per_second: float, seed: int, over: asyncio.Event, group: asyncio.TaskGroup
    ) -> None:
        rng = random.Random(seed)
        clock = asyncio.get_running_loop()
        due = clock.time()
        while not over.is_set():
            due += rng.expovariate(per_second)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due):
                    await over.wait()
                    return
            group.create_task(self._listen(way, rng.choice(self.speeches)))

    async def _listen(self, way: str, speech: Speech) -> None:
        clock = asyncio.get_running_loop()
        listener = Listener(way, clock.time(), self.row, met=self.lasts)
        self.all.append(listener)
        self.under_way.add(listener)
        self.changes.notify()
        player, digest = Player(BUFFER_SECONDS), hashlib.sha256()

        def hear(audio: bytes) -> None:
            player.hear(clock.time() - listener.begun, len(audio) / BYTES_PER_SAMPLE / SAMPLE_RATE)
            digest.update(audio)

        try:
            async with asyncio.timeout(_LONGEST_SECONDS):
                await (self._by_client if way == CLIENT else self._by_http)(listener, speech, hear)
            listener.identical = digest.hexdigest() == speech.digest
        except CosyserveError as error:
            listener.error = f"{error.code.name}: {error.message}"
        except TimeoutError:
            listener.error = f"not complete after {_LONGEST_SECONDS:g} s"
        except (OSError, EOFError) as error:
            # Without a gateway it was not cut: no connection was made.
            listener.cut = bool(listener.gateway)
            where = f"cut after {player.audio:.2f} s of audio" if listener.cut else "no gateway"
            listener.error = f"{where}: {type(error).__name__}: {error}"
        except ValueError as error:
            listener.error = str(error)
        finally:
            self.under_way.discard(listener)
        listener.first, listener.audio = player.first_sound or 0.0, player.audio
        listener.seconds = clock.time() - listener.begun
        listener.dry = max((stall.seconds for stall in player.dry), default=0.0)

    async def _by_client(self, listener: Listener, speech: Speech, hear: Callable[[bytes], None]) -> None:
        async with self.client.synthesize(speech.text, seed=speech.seed, timeout=_LONGEST_SECONDS) as stream:
            async for chunk in stream:
                hear(chunk.audio)
            listener.resumed = stream.resumed + (stream.summary.resumptions if stream.summary else 0)

    async def _by_http(self, listener: Listener, speech: Speech, hear: Callable[[bytes], None]) -> None:
        """Connects to any gateway in the name, and again while none takes the connection."""
        clock = asyncio.get_running_loop()
        while not listener.gateway:
            address = random.choice(list(self.gateways()) or ["127.0.0.1:1"])
            caller = HttpCaller(address)
            try:
                await caller.connect()
                listener.gateway = address
            except OSError:
                if clock.time() - listener.begun > _CONNECT_SECONDS:
                    raise
                await asyncio.sleep(_TRY_AGAIN_SECONDS)
        async with caller, contextlib.aclosing(caller.pieces(speech.text, "pcm", speech.seed)) as pieces:
            async for audio in pieces:
                hear(audio)
