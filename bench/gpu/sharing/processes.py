"""The processes of one way of sharing, started when they are first asked for, and what is asked of
them for a row.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar, cast

from bench.gpu.sharing.rows import Row
from bench.gpu.sharing.service import Service
from bench.gpu.sharing.worker import Worker, WorkerFailed
from cosyserve.host.supervision.layout import ProcessSpec

MOST_STARTS = 2
"""Failed starts of one process."""
Member = TypeVar("Member", Worker, Service)
Members = tuple[Worker | None, Service | None, Worker | None]


class SharingProcesses:
    """places: of "llm" and "token2wav". The service and the process of passes never run at
    the same time: each could occupy SMs that the grid-wide barriers of the other wait for.
    After a failure `close` it: the next request starts it again."""

    def __init__(self, device: str, model: Path, places: Mapping[str, ProcessSpec]) -> None:
        self._device, self._model, self._places = device, model, places
        self._llm: Worker | None = None
        self._passes: Worker | None = None
        self._service: Service | None = None
        self._failures: dict[str, str] = {}
        self._starts: dict[str, int] = {}

    async def llm(self) -> Worker:
        """Raises WorkerFailed, as all of these."""
        if self._llm is None:
            self._llm = await self._started("decoding", lambda: self._worker("decoding", "llm"))
        return self._llm

    async def passes(self) -> Worker:
        if self._service is not None:
            await self._service.close()
            self._service = None
        if self._passes is None:
            self._passes = await self._started("passes", lambda: self._worker("passes", "token2wav"))
        return self._passes

    async def service(self) -> Service:
        if self._passes is not None:
            await self._passes.close()
            self._passes = None
        if self._service is None:
            self._service = await self._started("service", lambda: Service.start(self._places["token2wav"]))
        return self._service

    async def close(self) -> None:
        for member in (self._llm, self._passes, self._service):
            if member is not None:
                await member.close()
        self._llm = self._passes = self._service = None

    async def _started(self, name: str, start: Callable[[], Awaitable[Member]]) -> Member:
        if self._starts.get(name, 0) >= MOST_STARTS:
            raise WorkerFailed(self._failures[name])
        try:
            return await start()
        except WorkerFailed as error:
            self._starts[name], self._failures[name] = self._starts.get(name, 0) + 1, str(error)
            raise

    async def _worker(self, module: str, service: str) -> Worker:
        environ = self._places[service].environ
        return await Worker.start(f"bench.gpu.sharing.{module}", self._device, str(self._model), environ=environ)


async def heard(company: SharingProcesses, row: Row, seconds: float) -> dict[str, dict[str, list[float]]]:
    """Milliseconds of everything that a row measures: "passes" by units, "service", "llm" from
    token to token. Raises WorkerFailed.
    """
    times: dict[str, dict[str, list[float]]] = {}
    llm, service, passes = await _members(company, row)
    if llm and row.llm:
        await llm.ask(do="talk", way=row.llm.way, pace=row.llm.pace, sentences=row.llm.sentences)
    if service:
        times["service"] = await service.first_passes(seconds)
    elif passes:
        times["passes"] = {
            str(units): (await passes.ask(way=row.way, units=units, seconds=seconds))["ms"] for units in row.units
        }
    else:
        await asyncio.sleep(seconds)
    if llm and row.llm:
        times["llm"] = {"token": (await llm.ask(do="hush"))["ms"]}
    return times


async def _members(company: SharingProcesses, row: Row) -> Members:
    """Started side by side; each is there, or has failed, before anything is raised, so that
    `close` finds it. A missing decoding process does not matter while nothing decodes."""
    answers = await asyncio.gather(
        company.llm(), company.service() if row.service else _nothing(),
        company.passes() if row.units and not row.service else _nothing(),
        return_exceptions=True,
    )  # fmt: skip
    missed = [one for one in answers[0 if row.llm else 1 :] if isinstance(one, BaseException)]
    if missed:
        raise missed[0]
    return cast("Members", tuple(None if isinstance(one, BaseException) else one for one in answers))


async def _nothing() -> None:
    return None
