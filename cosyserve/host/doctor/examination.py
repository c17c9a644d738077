"""All checks of one machine, in order of importance."""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cosyserve.host.doctor.finding import Finding, State
from cosyserve.host.doctor.gpu_checks import (
    check_driver,
    check_gpus,
    torch_directory,
)
from cosyserve.host.doctor.host_checks import (
    check_clock,
    check_cores,
    check_disk,
    check_inner_ports,
    check_memory,
    check_open_files,
    check_public_port,
    check_python,
)
from cosyserve.host.doctor.installation_checks import (
    check_library,
    check_library_combinations,
    check_model,
    checkpoint_bytes,
    flow_and_vocoder,
)
from cosyserve.host.hardware import SUPPORTED_LIBRARIES, Machine, this_machine
from cosyserve.host.recommendation import Recommendation, recommended
from cosyserve.settings import cache_directory


@dataclass(frozen=True)
class Examination:
    machine: Machine
    findings: tuple[Finding, ...]
    recommendation: Recommendation

    @property
    def healthy(self) -> bool:
        return all(finding.state is not State.PROBLEM for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "healthy": self.healthy,
            "machine": asdict(self.machine),
            "findings": [finding.as_dict() for finding in self.findings],
            "recommendation": asdict(self.recommendation),
        }


def examine(
    model: Path,
    listen: str,
    *,
    decoder_model: Path | None = None,
    gpu_wanted: bool = False,
    environ: Mapping[str, str] = os.environ,
) -> Examination:
    """Run all checks; blocks while nvidia-smi runs. decoder_model: of a model of two directories
    the second. gpu_wanted: no GPU is a problem. Raises
    SettingsError for a malformed `listen`.
    """
    machine = this_machine()
    weights, has_gpu = checkpoint_bytes(model, decoder_model), machine.gpu is not None
    findings = [
        check_driver(machine, gpu_wanted),
        *check_gpus(machine, torch_directory(), environ),
        check_python(),
        *(check_library(library, machine) for library in SUPPORTED_LIBRARIES),
        *check_library_combinations(machine),
        *check_model(model, decoder_model),
        check_cores(machine),
        check_memory(machine, weights),
        check_disk(cache_directory(environ), has_gpu),
        check_open_files(),
        check_public_port(listen),
        check_inner_ports(),
        check_clock(),
    ]
    networks = flow_and_vocoder(model, decoder_model)
    return Examination(machine, tuple(findings), recommended(machine, weights, networks, environ))
