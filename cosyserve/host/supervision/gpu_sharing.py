"""Engines of one machine that use the same GPU: at the same time through NVIDIA's Multi-Process
Service (MPS), or in turns.

Without MPS the kernels of two processes never run together: each process has the GPU for a time
slice, however little it does in it.
"""

import asyncio
import collections
import contextlib
import dataclasses
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from cosyserve.engines.gpu_facts import has_nvidia_device
from cosyserve.errors import SettingsError
from cosyserve.host.supervision.layout import ProcessSpec, named_gpus

VARIABLE = "COSYSERVE_GPU_SHARING"
WAYS = ("auto", "off")
PROGRAM = "nvidia-cuda-mps-control"
_PIPES, _PRIORITY, _VISIBLE = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_CLIENT_PRIORITY", "CUDA_VISIBLE_DEVICES"
CLIENT_PRIORITIES = {"llm": {_PRIORITY: "0"}, "token2wav": {_PRIORITY: "1"}}
"""Normal and below normal. A decode step is some hundred kernels of microseconds, one after
another, and token2wav waits for its tokens: it must not queue after a pass of token2wav. The
priority is a hint to the driver; levels as in the MPS manual of NVIDIA.
"""
_DEFAULT_PIPES = Path("/tmp/nvidia-mps")  # noqa: S108 - where a daemon of the machine listens; nothing is written there
_ANSWER_SECONDS = 20.0
_STOP_SECONDS = 15.0
_ASK_SECONDS = 5.0
Report = Callable[[str], None]


def wanted_way(environ: Mapping[str, str], option: str | None = None) -> str:
    """auto or off: `option`, else COSYSERVE_GPU_SHARING, else auto. Raises SettingsError for any
    other value.
    """
    way = option or environ.get(VARIABLE) or "auto"
    if way not in WAYS:
        raise SettingsError(f"{VARIABLE}={way!r} is none of {', '.join(WAYS)}")
    return way


def finds_a_daemon(environ: Mapping[str, str]) -> bool:
    """Whether processes with these variables use an existing MPS daemon, which may not answer."""
    return _PIPES in environ or (_DEFAULT_PIPES / "control").exists()


@contextlib.asynccontextmanager
async def shared_gpu(places: list[ProcessSpec], way: str, report: Report) -> AsyncIterator[list[ProcessSpec]]:
    """The same places with the variables that they need to share a GPU; an MPS daemon started for
    that runs as long as the block.

    An existing daemon, at CUDA_MPS_PIPE_DIRECTORY or the default path of NVIDIA, is used as it is.
    A daemon of our own serves all GPUs that several engines share. `report` gets one line for each
    shared GPU; if none is shared, nothing is reported or done. Device settings never change.
    """
    groups = _groups(places)
    if not groups:
        yield places
        return
    if way == "off":
        _each(groups, report, lambda names: f"{names} share a GPU in turns: {VARIABLE}=off")
        yield places
        return

    def in_turns(reason: str) -> Callable[[str], str]:
        return lambda names: f"warning: {names} share a GPU in turns: {reason}"

    def together(daemon: str) -> Callable[[str], str]:
        return lambda names: f"{names} run on one GPU at the same time, through {daemon}"

    environ = groups[0][0].environ
    if finds_a_daemon(environ):
        if await _answers(environ):
            _each(groups, report, together("the MPS daemon that is there"))
            yield _with_variables(places, groups, {})
            return
        if _PIPES in environ:
            _each(groups, report, in_turns(f"{_PIPES} is set, but no MPS daemon answers there"))
            yield places
            return
    # Two decoders would both compute all the time, and only one process per GPU may launch kernels
    # with a grid-wide barrier.
    crowded = [group for group in groups if sum(place.service == "token2wav" for place in group) > 1]
    _each(crowded, report, in_turns("more than one of them is token2wav; give each a GPU of its own"))
    groups = [group for group in groups if group not in crowded]
    if not groups:
        yield places
        return
    program = shutil.which(PROGRAM, path=environ.get("PATH"))
    if program is None:
        _each(groups, report, in_turns(f"{PROGRAM} is not on this machine"))
        yield places
        return
    async with _MpsKeeper(program, environ, report) as keeper:
        if keeper.pipes is None:
            _each(groups, report, in_turns(keeper.reason))
            yield places
        else:
            _each(groups, report, together("an MPS daemon of their own"))
            yield _with_variables(places, groups, {_PIPES: keeper.pipes})


def _each(groups: Sequence[Sequence[ProcessSpec]], report: Report, line: Callable[[str], str]) -> None:
    """Report one line for each GPU; `line` formats the names of those that share it."""
    for group in groups:
        report(line(", ".join(place.label for place in group)))


def _groups(places: Sequence[ProcessSpec]) -> list[list[ProcessSpec]]:
    """Engine processes that share a GPU, by GPU."""
    by_device: dict[str, list[ProcessSpec]] = collections.defaultdict(list)
    for place in places:
        device = _device(place)
        if device is not None:
            by_device[device].append(place)
    return [group for group in by_device.values() if len(group) > 1]


def _device(place: ProcessSpec) -> str | None:
    """The GPU of the engine, as in CUDA_VISIBLE_DEVICES; None without one. A GPU named by number in
    one place and by UUID in another counts as two.
    """
    prefix = f"COSYSERVE_{place.service.upper()}_"
    if place.service not in CLIENT_PRIORITIES or place.environ.get(prefix + "BACKEND") == "fake":
        return None
    device = place.environ.get(prefix + "DEVICE") or "auto"
    kind, _, number = device.partition(":")
    if (kind != "cuda" and not (kind == "auto" and has_nvidia_device())) or not (number or "0").isdecimal():
        return None
    visible = place.environ.get(_VISIBLE)
    if visible is None:
        return number or "0"
    named = named_gpus(visible)
    at = int(number or 0)
    return named[at] if at < len(named) else None


def _with_variables(
    places: list[ProcessSpec], groups: Sequence[Sequence[ProcessSpec]], environ: Mapping[str, str]
) -> list[ProcessSpec]:
    sharers = {place for group in groups for place in group}

    def with_variables(place: ProcessSpec) -> ProcessSpec:
        if place not in sharers:
            return place
        return dataclasses.replace(place, environ={**CLIENT_PRIORITIES[place.service], **place.environ, **environ})

    return [with_variables(place) for place in places]


async def _answers(environ: Mapping[str, str]) -> bool:
    """Whether an MPS daemon accepts clients with these variables."""
    program = shutil.which(PROGRAM, path=environ.get("PATH"))
    # in a container the daemon often runs outside, and only its pipes are here
    if program is None:
        return (Path(environ.get(_PIPES, _DEFAULT_PIPES)) / "control").exists()
    asking = await asyncio.create_subprocess_exec(
        program,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        env=dict(environ),
        process_group=0,
    )
    try:
        async with asyncio.timeout(_ASK_SECONDS):
            await asking.communicate(b"get_server_list\n")
    except TimeoutError:
        return False
    finally:
        if asking.returncode is None:
            asking.kill()
            await asking.wait()
    return asking.returncode == 0


class _MpsKeeper:
    """`mps_keeper` as a child, while the block runs."""

    def __init__(self, program: str, environ: Mapping[str, str], report: Report) -> None:
        self._program, self._environ, self._report = program, environ, report
        self._process: asyncio.subprocess.Process
        self._watching: asyncio.Task[None] | None = None
        self.pipes: str | None = None
        """Directory in which the daemon listens; None if it does not run."""
        self.reason = ""

    async def __aenter__(self) -> "_MpsKeeper":
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "cosyserve.host.supervision.mps_keeper",
            self._program,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **self._environ},
            process_group=0,
        )
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                line = await cast("asyncio.StreamReader", self._process.stdout).readline()
            reply = json.loads(line)
            self.pipes, self.reason = reply.get("pipes"), reply.get("failed", "")
        except TimeoutError:
            self.reason = f"{PROGRAM} did not answer within {_ANSWER_SECONDS:g} s"
        except ValueError:
            self.reason = f"the keeper of {PROGRAM} ended without output"
        except BaseException:
            await self._end()
            raise
        if self.pipes is not None:
            self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._watching is not None:
            self._watching.cancel()
        await self._end()

    async def _watch(self) -> None:
        await self._process.wait()
        self._report(
            "warning: the MPS daemon ended; engines that are started from now on have the GPU in turns with the others"
        )

    async def _end(self) -> None:
        cast("asyncio.StreamWriter", self._process.stdin).close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await self._process.wait()
        except TimeoutError:
            self._report(f"the keeper of {PROGRAM} did not end in time and is killed")
            self._process.kill()
            await self._process.wait()
