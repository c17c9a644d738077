"""One part: its loads on one server, each kept as soon as it is known."""

import dataclasses
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.field.arrivals import Schedule, schedule
from bench.field.callers import DRAIN_SECONDS, Callers, Heard, callers
from bench.field.figures import Row, row
from bench.field.loads import Group
from bench.field.server import Server, serving
from bench.parts.part import ResultsFile
from bench.parts.provenance import Subject


@dataclass(frozen=True)
class Conditions:
    """What has to be the same for figures to belong together, besides machine, versions and source.

    model: its identity. device: name of the GPU or processor that computes; empty for a running
    server. callers: processes. settings: text of what the command line sets.
    """

    model: str
    backend: str
    device: str
    requests: int
    seconds: float
    seed: int
    callers: int
    settings: str


def rows_of(content: dict[str, Any]) -> list[Row]:
    """Of a part's file."""
    return [Row.read(one) for one in content.get("rows", [])]


async def measure(
    group: Group, server: Server, conditions: Conditions, subject: Subject, path: Path | None
) -> list[Row]:
    """Loads that `path` has already are not run again. Raises ValueError if it holds figures of
    something else, or if no request of a load was answered.
    """
    results = ResultsFile(path)
    head = {"part": group.name, "subject": dataclasses.asdict(subject), "conditions": dataclasses.asdict(conditions)}
    if results and not _continues(results, head, subject):
        raise ValueError(f"{path} holds figures of another part, machine, source or model; name another file")
    rows = rows_of(results)
    left = [load for load in group.loads if load.name not in {one.load for one in rows}]
    if not left:
        return rows
    async with AsyncExitStack() as exits:
        running = await exits.enter_async_context(serving(server, cold=group.cold))
        calling: dict[str, Callers] = {}
        for load in left:
            if load.door not in running.addresses:
                raise ValueError(f"the part {group.name} needs the address of a server over {load.door}")
            if load.door not in calling:
                calling[load.door] = await exits.enter_async_context(
                    callers(load.door, running.addresses[load.door], conditions.callers)
                )
            plan = schedule(load, conditions.seed)
            print(f"{group.name}, {load.name}: {len(plan.requests)} requests", file=sys.stderr, flush=True)
            heard = await calling[load.door].call(plan, any_sample=server.any_sample)
            print(f"{group.name}, {load.name}: {_drained(plan, heard)}", file=sys.stderr, flush=True)
            rows.append(row(load, plan, heard, any_sample=server.any_sample))
            if "part" not in results:
                whole = head | {
                    "about": group.about,
                    "engines": running.engines,
                    "start_seconds": running.start_seconds,
                    "start_phases": running.phases,
                    "derived_settings": dict(server.derived),
                }
                for name, value in whole.items():
                    results[name] = value
            results["rows"] = [one.as_dict() for one in rows]
    return rows


def _drained(plan: Schedule, heard: Heard) -> str:
    due = {request.number: request.at for request in plan.requests}
    after = max(due[one.number] + one.end for one in heard.answers) - max(due.values())
    return f"over {max(after, 0.0):.1f} s after its last request, of at most {DRAIN_SECONDS:g} s"


def _continues(results: ResultsFile, head: dict[str, Any], subject: Subject) -> bool:
    return (
        all(results.get(name) == head[name] for name in ("part", "conditions"))
        and "subject" in results
        and Subject(**results["subject"]).same(subject)
    )
