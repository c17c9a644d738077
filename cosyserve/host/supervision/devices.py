"""Which device each replica of an engine gets: asked for by `--devices`, given to the process as
the only GPU that it sees.
"""

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
    """How many replicas of each service there are: one for each of its devices, else what
    `replicas` says.

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
    """What the process of a replica on device `name` is told. environ: of all processes.

    A process sees its GPU alone, as number 0: engines and their libraries put some things on the
    first GPU that they see, whatever device they are given. cuda:N counts as CUDA does: from 0,
    among those that CUDA_VISIBLE_DEVICES names where it is set. Raises SettingsError for a GPU that
    is not there.
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
    """The GPUs that a value of CUDA_VISIBLE_DEVICES names; CUDA numbers those before the first that
    is no GPU.
    """
    return list(itertools.takewhile(_names_a_gpu, (name.strip() for name in visible.split(","))))


def _names_a_gpu(name: str) -> bool:
    return name.isdecimal() or name.startswith(("GPU-", "MIG-"))
