"""Do voices stay whole? `python -m bench.voices_soak`: create, list, read and delete from many
clients through two frontends, one storage.

Half of the ids are each client's own, the other half is shared by all, where ALREADY_EXISTS and
NOT_FOUND are right answers. Wrong are: any other status, an own voice that is not there or is still
there, a voice whose content is not what was made, and a file that is left when all voices are
deleted. Exit status 1 when something was wrong.
"""

import asyncio
import contextlib
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from bench.load.command_line import command
from cosyserve.audio.wav import wav_header
from cosyserve.client import AsyncClient
from cosyserve.errors import AlreadyExists, CosyserveError, NotFound
from cosyserve.host.supervision.supervisor import local_deployment

Result = TypeVar("Result")
SHARED_IDS = 6
_RATE = 16_000


@dataclass(frozen=True)
class SoakResult:
    """What a run saw. done: operations by kind and outcome; faults: a line for each thing that was
    wrong; left: files no voice needs.
    """

    operations: int
    clients: int
    seconds: float
    done: dict[str, int]
    faults: list[str]
    left: list[str]

    @property
    def sound(self) -> bool:
        return not self.faults and not self.left


class _Caller:
    """One client: what it knows must be there. hashes: of the voice of each recording, shared by
    all.
    """

    def __init__(
        self, number: int, client: AsyncClient, seed: int, recordings: dict[str, bytes], hashes: dict[str, str]
    ) -> None:
        self._number, self._client, self._recordings, self._hashes = number, client, recordings, hashes
        self._rng = random.Random(f"{seed} {number}")
        self._own: dict[str, str] = {}
        self._created = 0
        self.done: Counter[str] = Counter()
        self.faults: list[str] = []

    async def operate(self) -> None:
        """One operation, chosen at random."""
        kind = self._rng.choices(("create", "list", "delete", "show"), (4, 2, 3, 1))[0]
        try:
            await getattr(self, f"_{kind}")()
        except CosyserveError as error:
            self._wrong(f"{kind}: {error.code.name}: {error.message}")

    async def _create(self) -> None:
        own = self._rng.random() < 0.5
        voice_id = f"own-{self._number}-{self._created}" if own else self._shared()
        self._created += 1
        name = self._rng.choice(sorted(self._recordings))
        making = self._client.create_voice(self._recordings[name], voice_id=voice_id, description=name)
        if voice := await self._counted("create", making, AlreadyExists, f"own {voice_id} was taken" if own else ""):
            self._check(voice.content_hash, name, voice_id)
            if own:
                self._own[voice_id] = name

    async def _list(self) -> None:
        listed = {voice.id: voice for voice in await self._client.voices()}
        self.done["list ok"] += 1
        mine = f"own-{self._number}-"
        for voice_id in self._own.keys() - listed:
            self._wrong(f"own {voice_id} is not listed")
        for voice_id in {voice_id for voice_id in listed if voice_id.startswith(mine)} - self._own.keys():
            self._wrong(f"{voice_id} is listed and was deleted")
        if halves := [voice.id for voice in listed.values() if not voice.prompt_seconds or not voice.content_hash]:
            self._wrong(f"{halves[0]} is half a voice")

    async def _show(self) -> None:
        voice_id, own = self._one(0.5)
        missing = f"own {voice_id} is not found" if own else ""
        shown = await self._counted("show", self._client.voice(voice_id), NotFound, missing)
        # Labels of a voice that is deleted while it is read may be gone before it is.
        if shown and shown.description:
            self._check(shown.content_hash, shown.description, voice_id)

    async def _delete(self) -> None:
        voice_id, own = self._one(0.6)
        missing = f"own {voice_id} is not there to be deleted" if own else ""
        await self._counted("delete", self._client.delete_voice(voice_id), NotFound, missing)
        self._own.pop(voice_id, None)

    def _one(self, share: float) -> tuple[str, bool]:
        """An id, and whether it is one of its own; of its own in `share` of all cases."""
        own = bool(self._own) and self._rng.random() < share
        return self._rng.choice(sorted(self._own)) if own else self._shared(), own

    def _shared(self) -> str:
        return f"shared-{self._rng.randrange(SHARED_IDS)}"

    async def _counted(
        self, kind: str, answer: Awaitable[Result], lost: type[CosyserveError], fault: str
    ) -> Result | None:
        """The answer; None for the error `lost`, which others may cause. fault: what is wrong if
        they cannot have."""
        try:
            result = await answer
        except lost:
            self.done[f"{kind} lost"] += 1
            if fault:
                self._wrong(fault)
            return None
        self.done[f"{kind} ok"] += 1
        return result

    def _check(self, content_hash: str, recording: str, voice_id: str) -> None:
        if self._hashes.setdefault(recording, content_hash) != content_hash:
            self._wrong(f"{voice_id} is not the voice of {recording}")

    def _wrong(self, what: str) -> None:
        self.faults.append(f"client {self._number}: {what}")


async def soak(model: Path, operations: int, clients: int, seed: int) -> SoakResult:
    """Run `operations` from `clients` at once on a storage of its own, then delete what is there
    and look at what is left.
    """
    recordings, hashes = {f"recording {number}": recording(number) for number in range(4)}, dict[str, str]()
    async with contextlib.AsyncExitStack() as exits:
        storage = Path(exits.enter_context(tempfile.TemporaryDirectory())) / "voices"
        environ = {
            "COSYSERVE_FRONTEND_VOICES_URL": str(storage),
            "COSYSERVE_FRONTEND_MAX_VOICE_MAKINGS": str(clients),
            "COSYSERVE_ORCHESTRATOR_MAX_VOICE_MAKINGS": str(clients),
        }
        async with local_deployment(model, replicas={"frontend": 2}, backend="fake", environ=environ) as stack:
            doors = [await exits.enter_async_context(AsyncClient(stack.address)) for _ in range(clients)]
            callers = [_Caller(number, door, seed, recordings, hashes) for number, door in enumerate(doors)]
            numbers = iter(range(operations))

            async def call(caller: _Caller) -> None:
                for number in numbers:
                    await caller.operate()
                    if number % 50 == 0:
                        print(f"\r{number} of {operations} operations", end="", file=sys.stderr, flush=True)

            begin = time.monotonic()
            await asyncio.gather(*map(call, callers))
            seconds = time.monotonic() - begin
            print(file=sys.stderr)
            for voice in await doors[0].voices():
                if not voice.is_preset:
                    await doors[0].delete_voice(voice.id)
        left = [str(path.relative_to(storage)) for path in sorted(storage.rglob("*")) if path.is_file()]
    done = sum((caller.done for caller in callers), Counter[str]())
    faults = [fault for caller in callers for fault in caller.faults]
    return SoakResult(operations, clients, seconds, dict(sorted(done.items())), faults, left)


def recording(number: int) -> bytes:
    """A WAV file of 1.2 s, another voice for each number."""
    time_ = np.arange(int(1.2 * _RATE)) / _RATE
    phase = 2 * np.pi * (110 + 30 * number) * time_
    buzz = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 20))
    samples = (0.15 * buzz * (0.55 + 0.45 * np.sin(2 * np.pi * 3 * time_)) * 32767).astype("<i2")
    return wav_header(_RATE, len(samples)) + samples.tobytes()


def main() -> int:
    parser = command("bench.voices_soak", __doc__)
    parser.add_argument("--operations", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = asyncio.run(soak(options.model, options.operations, options.clients, options.seed))
    if options.json:
        print(json.dumps({**asdict(result), "sound": result.sound}))
    else:
        print(f"{result.operations} operations from {result.clients} clients in {result.seconds:.1f} s: {result.done}")
        print(f"{len(result.faults)} faults, {len(result.left)} files left")
        print("\n".join([*result.faults[:20], *result.left[:20]]))
    return 0 if result.sound else 1


if __name__ == "__main__":
    sys.exit(main())
