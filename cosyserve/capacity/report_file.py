"""Reads the report of `make bench-gpu`, or the profile that comes along, of the same form."""

import json
import math
import re
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from cosyserve.capacity.profile import CHUNK_POSITIONS, Contention, EngineProfile, HostCosts, Planning
from cosyserve.errors import SettingsError

DEFAULT = "h200"
_MEGABYTE = 1_000_000
_PARTS = "make bench-gpu BENCH_ARGS='--part {}'"
_LARGEST_FILE = 64 * 1024 * 1024


class BadReport(SettingsError):
    """A report from which no capacity can be planned; the text says what is wrong and where."""


def default_profile() -> EngineProfile:
    """One H200, from the figures of the documentation."""
    text = (resources.files("cosyserve.capacity") / "profiles" / f"{DEFAULT}.json").read_text(encoding="utf-8")
    return profile_of(json.loads(text), f"profile {DEFAULT}")


def read_profile(path: Path) -> EngineProfile:
    """Raises BadReport for a file that is no report or lacks a part, OSError where it cannot be
    read.
    """
    if path.is_file() and path.stat().st_size > _LARGEST_FILE:
        raise BadReport(f"{path} has {path.stat().st_size} bytes; a report has at most {_LARGEST_FILE}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise BadReport(f"{path} is no JSON: {error}") from None
    return profile_of(content, str(path), default_profile())


def profile_of(content: Any, where: str, others: EngineProfile | None = None) -> EngineProfile:
    """The profile of a report that was read from `where`. others: gives what a report of
    `make bench-gpu` does not measure: contention of the engines, processor time of the services
    without a GPU, memory of the GPU. Raises BadReport.
    """
    report = _Report(content, where)
    contention, hosts = report.beside(others), report.hosts(others)
    memory = report.optional("gpu", "memory_gibibytes")
    if memory is None and others is None:
        raise BadReport(f"{where}: gpu.memory_gibibytes is missing")
    return EngineProfile(
        name=report.name,
        decode=report.decode(),
        prefill=report.prefill(),
        flow=report.sizes("flow", r"(\d+) (\d+)", lambda one, two: (one, two)),
        recompute=report.sizes("recompute", r"(\d+)", lambda one: one),
        vocoder=report.sizes("vocoder", r"float16 50 (\d+)", lambda one: one),
        contention=contention,
        planning=report.planning(others),
        hosts=hosts,
        block_bytes=report.block_bytes(),
        memory=int(memory * (1 << 30)) if memory is not None else others.memory if others else 0,
        llm_bytes=int(_MEGABYTE * (report.lengths("llm_megabytes") - report.lengths("llm_pool_megabytes"))),
        token2wav_bytes=int(
            _MEGABYTE * (report.lengths("token2wav_megabytes") - report.lengths("token2wav_pool_megabytes"))
            + _MEGABYTE * report.lengths("context_megabytes")
        ),
        row_bytes=report.row_bytes(),
        host=report.host_steps(others),
        sources=report.sources,
    )


class _Report:
    """A report and the place that it came from, for messages."""

    def __init__(self, content: Any, where: str) -> None:
        if not isinstance(content, dict) or not isinstance(content.get("figures"), dict):
            raise BadReport(f"{where} is no report of `make bench-gpu`: it has no object `figures`")
        self._content, self._figures, self._where = content, content["figures"], where
        subject = content.get("subject")
        self.name = str(subject.get("machine") if isinstance(subject, dict) else None or where)
        sources = content.get("sources")
        self.sources = {str(key): str(value) for key, value in sources.items()} if isinstance(sources, dict) else {}

    def _part(self, name: str) -> Mapping[str, Any]:
        part = self._figures.get(name)
        if not isinstance(part, dict):
            raise BadReport(f"{self._where} lacks the part {name}: {_PARTS.format(name)} measures it")
        return part

    def _number(self, value: Any, name: str, *, above: float = 0.0) -> float:
        number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
        if not (number > above and math.isfinite(number)):
            raise BadReport(f"{self._where}: {name} is {value!r}, wanted is a number above {above:g}")
        return number

    def optional(self, section: str, key: str) -> float | None:
        """A number of a section beside `figures`."""
        found = self._content.get(section)
        if not isinstance(found, dict) or key not in found:
            return None
        return self._number(found[key], f"{section}.{key}")

    def decode(self) -> dict[int, float]:
        """Seconds of a step of the LLM by rows."""
        rows = self._part("llm-engine").get("engine")
        together = rows.get("together") if isinstance(rows, dict) else None
        if not isinstance(together, list) or not together:
            raise BadReport(f"{self._where}: the part llm-engine has no list engine.together")
        found = {}
        for at, row in enumerate(together):
            name = f"llm-engine.engine.together[{at}]"
            if not isinstance(row, dict):
                raise BadReport(f"{self._where}: {name} is {row!r}, wanted is an object")
            count = self._number(row.get("sentences"), f"{name}.sentences")
            found[int(count)] = self._number(row.get("step_ms"), f"{name}.step_ms") / 1e3
        return found

    def prefill(self) -> float:
        """Seconds of a whole chunk of prompts."""
        steps = self._part("llm-steps").get("steps")
        chunks = steps.get("chunks") if isinstance(steps, dict) else None
        for chunk in chunks if isinstance(chunks, list) else []:
            if isinstance(chunk, dict) and chunk.get("count") == CHUNK_POSITIONS and chunk.get("first") == 0:
                return self._number(chunk.get("us"), "llm-steps.steps.chunks.us") / 1e6
        raise BadReport(
            f"{self._where}: the part llm-steps has no chunk of {CHUNK_POSITIONS} positions from 0 in steps.chunks"
        )

    def sizes(self, part: str, pattern: str, key: Callable[..., Any]) -> dict[Any, float]:
        """Seconds by what the names of the part's figures say; other names are left out."""
        found = {}
        for name, value in self._part(part).items():
            if match := re.fullmatch(pattern, name):
                found[key(*map(int, match.groups()))] = self._number(value, f"{part}.{name!r}") / 1e3
        if not found:
            raise BadReport(f"{self._where}: the part {part} has no figure of the form {pattern!r}")
        return found

    def lengths(self, key: str) -> float:
        """A figure of the part `lengths`."""
        return self._number(self._part("lengths").get(key), f"lengths.{key}")

    def _state(self, seconds: str) -> float:
        one = self._part("lengths").get(seconds)
        if not isinstance(one, dict):
            raise BadReport(f"{self._where}: the part lengths has no sentence of {seconds} s")
        return self._number(one.get("state_megabytes"), f"lengths.{seconds}.state_megabytes")

    def block_bytes(self) -> int:
        """Bytes that a second of sound, a block, adds to a stream."""
        grown = self._number(self._state("10") - self._state("4"), "what a sentence of 10 s holds more than one of 4 s")
        return int(grown * _MEGABYTE / 6)

    def row_bytes(self) -> int:
        """Bytes of a position of the LLM."""
        stream = self._part("lengths").get("llm_stream")
        if not isinstance(stream, dict):
            raise BadReport(f"{self._where}: the part lengths has no llm_stream")
        tokens = self._number(stream.get("tokens"), "lengths.llm_stream.tokens")
        return max(int(self._number(stream.get("bytes"), "lengths.llm_stream.bytes") / tokens), 1)

    def beside(self, others: EngineProfile | None) -> Contention:
        """What each engine costs the other."""
        found = self._content.get("beside")
        if found is None and others is not None:
            return others.contention
        if not isinstance(found, dict) or not isinstance(found.get("flow"), dict) or not found["flow"]:
            raise BadReport(f"{self._where}: beside.flow is no object of ratios by blocks")
        return Contention(
            self._by_blocks(found["flow"], "beside.flow"), self._number(found.get("decode"), "beside.decode")
        )

    def host_steps(self, others: EngineProfile | None) -> Mapping[int, float]:
        """What a step of token2wav takes besides the device."""
        host = self._content.get("host")
        found = host.get("step_milliseconds") if isinstance(host, dict) else None
        if found is None and others is not None:
            return others.host
        if not isinstance(found, dict) or not found:
            raise BadReport(f"{self._where}: host.step_milliseconds is no object of milliseconds by blocks")
        return {size: value / 1e3 for size, value in self._by_blocks(found, "host.step_milliseconds").items()}

    def planning(self, others: EngineProfile | None) -> Planning:
        """What the scheduler of token2wav takes."""
        host = self._content.get("host")
        found = host.get("planning_microseconds") if isinstance(host, dict) else None
        if found is None and others is not None:
            return others.planning
        name = "host.planning_microseconds"
        if not isinstance(found, dict):
            raise BadReport(f"{self._where}: {name} is no object")
        keys = ("a_step", "a_stream", "a_stream_in_it")
        return Planning(*(self._number(found.get(key), f"{name}.{key}") / 1e6 for key in keys))

    def _by_blocks(self, found: Mapping[str, Any], name: str) -> dict[int, float]:
        if unknown := [key for key in found if not re.fullmatch("[1-9][0-9]{0,6}", key)]:
            raise BadReport(f"{self._where}: {name} has the key {unknown[0]!r}, wanted are numbers of blocks from 1")
        return {int(blocks): self._number(value, f"{name}.{blocks}") for blocks, value in found.items()}

    def hosts(self, others: EngineProfile | None) -> HostCosts:
        """Processor time of the services without a GPU."""
        names = ("frontend_milliseconds_a_request", "orchestrator_milliseconds_a_second",
                 "gateway_milliseconds_a_second")  # fmt: skip
        found = [self.optional("host", name) for name in names]
        if others is None and None in found:
            raise BadReport(f"{self._where}: host lacks one of {', '.join(names)}")
        known = (
            (others.hosts.frontend_per_request, others.hosts.orchestrator_per_second, others.hosts.gateway_per_second)
            if others
            else (0.0, 0.0, 0.0)
        )
        return HostCosts(
            *(mine / 1e3 if mine is not None else theirs for mine, theirs in zip(found, known, strict=True))
        )
