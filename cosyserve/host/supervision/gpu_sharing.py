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
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

from cosyserve.engines.gpu_facts import VISIBLE, has_nvidia_device
from cosyserve.engines.one_launch import GPU_DECODE, ONE_LAUNCH
from cosyserve.errors import SettingsError
from cosyserve.host.supervision.layout import ProcessSpec, named_gpus
from cosyserve.settings import API_KEY, GPU_SHARING

WAYS = ("auto", "off")
PROGRAM = "nvidia-cuda-mps-control"
_PIPES, _PRIORITY = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_CLIENT_PRIORITY"
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
    way = option or environ.get(GPU_SHARING) or "auto"
    if way not in WAYS:
        raise SettingsError(f"{GPU_SHARING}={way!r} is none of {', '.join(WAYS)}")
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
    shared GPU; if none is shared, nothing is reported or done. Device settings never change. Raises
    SettingsError where an llm that needs a GPU of its own shares one, in whatever way.
    """
    async with contextlib.AsyncExitStack() as daemon:
        yield await _shared(places, way, report, daemon)


async def _shared(
    places: list[ProcessSpec], way: str, report: Report, daemon: contextlib.AsyncExitStack
) -> list[ProcessSpec]:
    """As `shared_gpu`; a daemon of our own is ended with `daemon`."""

    def in_turns(groups: Sequence[Sequence[ProcessSpec]], reason: str, mark: str = "warning: ") -> list[ProcessSpec]:
        for group in groups:
            report(f"{mark}{_names(group)} share a GPU in turns: {reason}")
        return places

    def together(groups: Sequence[Sequence[ProcessSpec]], server: str, environ: Mapping[str, str]) -> list[ProcessSpec]:
        for group in groups:
            report(f"{_names(group)} run on one GPU at the same time, through {server}")
        sharers = {place for group in groups for place in group}
        return [
            dataclasses.replace(place, environ={**CLIENT_PRIORITIES[place.service], **place.environ, **environ})
            if place in sharers
            else place
            for place in places
        ]

    groups = _groups(places)
    _require_own_gpu(groups)
    if not groups or way == "off":
        return in_turns(groups, f"{GPU_SHARING}=off", mark="")
    environ = groups[0][0].environ
    if finds_a_daemon(environ):
        if await asyncio.to_thread(_answers, environ):
            return together(groups, "the MPS daemon that is there", {})
        if _PIPES in environ:
            return in_turns(groups, f"{_PIPES} is set, but no MPS daemon answers there")
    # Two decoders would both compute all the time, and only one process per GPU may launch kernels
    # with a grid-wide barrier.
    crowded = [group for group in groups if sum(place.service == "token2wav" for place in group) > 1]
    in_turns(crowded, "more than one of them is token2wav; give each a GPU of its own")
    groups = [group for group in groups if group not in crowded]
    program = shutil.which(PROGRAM, path=environ.get("PATH"))
    if not groups or program is None:
        return in_turns(groups, f"{PROGRAM} is not on this machine")
    pipes, reason = await daemon.enter_async_context(_mps_keeper(program, environ, report))
    if pipes is None:
        return in_turns(groups, reason)
    return together(groups, "an MPS daemon of their own", {_PIPES: pipes})


def _require_own_gpu(groups: Sequence[Sequence[ProcessSpec]]) -> None:
    for group in groups:
        if any(place.service == "llm" and place.environ.get(GPU_DECODE) == ONE_LAUNCH for place in group):
            raise SettingsError(
                f"{GPU_DECODE}={ONE_LAUNCH} needs a GPU of its own, and {_names(group)} share one: give each its own "
                f"(--devices llm=cuda:0,token2wav=cuda:1), or set {GPU_DECODE}=launches"
            )


def _names(group: Sequence[ProcessSpec]) -> str:
    return ", ".join(place.label for place in group)


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
    kind, _, number = (place.environ.get(prefix + "DEVICE") or "auto").partition(":")
    if (kind != "cuda" and not (kind == "auto" and has_nvidia_device())) or not (number or "0").isdecimal():
        return None
    visible = place.environ.get(VISIBLE)
    if visible is None:
        return number or "0"
    named = named_gpus(visible)
    at = int(number or 0)
    return named[at] if at < len(named) else None


def _answers(environ: Mapping[str, str]) -> bool:
    """Whether an MPS daemon accepts clients with these variables. Blocks."""
    program = shutil.which(PROGRAM, path=environ.get("PATH"))
    # in a container the daemon often runs outside, and only its pipes are here
    if program is None:
        return (Path(environ.get(_PIPES, _DEFAULT_PIPES)) / "control").exists()
    try:
        asked = subprocess.run(
            [program],
            input=b"get_server_list\n",
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            process_group=0,
            timeout=_ASK_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return asked.returncode == 0


@contextlib.asynccontextmanager
async def _mps_keeper(
    program: str, environ: Mapping[str, str], report: Report
) -> AsyncIterator[tuple[str | None, str]]:
    """`mps_keeper` as a child while the block runs: the directory in which its daemon listens, or
    None and the reason why there is no daemon.
    """
    keeper = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cosyserve.host.supervision.mps_keeper",
        program,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        # The key is of a caller; the daemon has no use for it.
        env={name: value for name, value in {**os.environ, **environ}.items() if name != API_KEY},
        process_group=0,
    )
    watching: asyncio.Task[None] | None = None
    try:
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                reply = json.loads(await cast("asyncio.StreamReader", keeper.stdout).readline())
        except TimeoutError:
            reply = {"failed": f"{PROGRAM} did not answer within {_ANSWER_SECONDS:g} s"}
        except ValueError:
            reply = {"failed": f"the keeper of {PROGRAM} ended without output"}
        if "pipes" in reply:
            watching = asyncio.create_task(_report_end(keeper, report))
        yield reply.get("pipes"), reply.get("failed", "")
    finally:
        if watching is not None:
            watching.cancel()
        cast("asyncio.StreamWriter", keeper.stdin).close()
        try:
            async with asyncio.timeout(_STOP_SECONDS):
                await keeper.wait()
        except TimeoutError:
            report(f"the keeper of {PROGRAM} did not end in time and is killed")
            keeper.kill()
            await keeper.wait()


async def _report_end(keeper: asyncio.subprocess.Process, report: Report) -> None:
    await keeper.wait()
    report("warning: the MPS daemon ended; engines that are started from now on have the GPU in turns with the others")
