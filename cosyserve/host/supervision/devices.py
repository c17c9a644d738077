"""The device of each replica: `--devices` names it, and the process sees only that GPU."""

import itertools
import re
from collections.abc import Mapping, Sequence

from cosyserve.engines.gpu_facts import gpu_count
from cosyserve.errors import SettingsError

VISIBLE = "CUDA_VISIBLE_DEVICES"
_FORM = re.compile(r"cpu|cuda:(?P<number>\d{1,3})")


def checked_devices(
    services: Sequence[str], devices: Mapping[str, Sequence[str]], replicas: Mapping[str, int]
) -> dict[str, int]:
    """Number of replicas of each service: one for each of its devices, else as `replicas` says.

    services: those that have an engine. Raises SettingsError for another service, a device that is
    neither cpu nor cuda:N, and a number of replicas that contradicts the devices.
    """
    for service, names in devices.items():
        if service not in services:
            raise SettingsError(
                f"--devices: {service!r} has no engine; services that can have devices: {', '.join(services)}"
            )
        for name in names:
            if not _FORM.fullmatch(name):
                raise SettingsError(
                    f"--devices: {name!r} of {service} is no device; expected cpu, or cuda:N such as cuda:0"
                )
        asked = replicas.get(service)
        if asked is not None and asked != len(names):
            raise SettingsError(
                f"--devices names {len(names)} for {service} and --replicas asks for {asked} of it: each replica has "
                "one device, "
                "so leave --replicas out, or name a device once for each replica that shall use it"
            )
    return {**replicas, **{service: len(names) for service, names in devices.items()}}


def variables(service: str, name: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Variables of the process of a replica on device `name`. environ: of all processes.

    A process sees only its own GPU, as number 0: engines and their libraries use the first visible
    GPU for some things, whatever device they are given. cuda:N counts as CUDA does: from 0, among
    those in CUDA_VISIBLE_DEVICES if it is set. Raises SettingsError for a GPU that does not exist.
    """
    variable = f"COSYSERVE_{service.upper()}_DEVICE"
    match = _FORM.fullmatch(name)
    if match is None or match["number"] is None:
        return {variable: name}
    number = int(match["number"])
    visible_gpus = (
        named_gpus(environ[VISIBLE]) if VISIBLE in environ else [str(number) for number in range(gpu_count())]
    )
    if number >= len(visible_gpus):
        among = f", of which {VISIBLE}={environ[VISIBLE]} leaves {len(visible_gpus)}" if VISIBLE in environ else ""
        count = gpu_count()
        raise SettingsError(
            f"--devices: {service} is to use {name}, but this machine has {count} NVIDIA GPU{'s' * (count != 1)}{among}"
        )
    return {variable: "cuda", VISIBLE: visible_gpus[number]}


def named_gpus(visible: str) -> list[str]:
    """The GPUs in a value of CUDA_VISIBLE_DEVICES; CUDA ignores all from the first invalid
    one on.
    """
    return list(itertools.takewhile(_names_a_gpu, (name.strip() for name in visible.split(","))))


def _names_a_gpu(name: str) -> bool:
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))
