"""Which configuration a machine gets, with which settings; and why not a faster one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyserve.doctor.model_checks import checkpoint_bytes
from cosyserve.errors import SettingsError
from cosyserve.hardware.configurations import BY_NAME, CONFIGURATIONS, Configuration
from cosyserve.hardware.machine import Machine
from cosyserve.starting.engines import BUILD, CONVERTED, SERVED_AS_IT_IS, built, conversion, converted_directory


@dataclass(frozen=True)
class Plan:
    """backends: of llm and token2wav. environ: variables for the services. why: what decided the settings."""

    configuration: Configuration
    backends: dict[str, str]
    environ: dict[str, str]
    tier: str
    why: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.configuration.name


@dataclass(frozen=True)
class StepDown:
    """A configuration that is faster by the ladder and cannot run, and the reason."""

    name: str
    reason: str


def planned(configuration: Configuration, machine: Machine, model: Path, *, forced: bool, environ: Mapping[str, str] = os.environ) -> Plan:
    """What the user's environment says stays; forced: except where the configuration would not be itself."""
    told = configuration.settings(machine, checkpoint_bytes(model))
    backends = {
        service: (not forced and environ.get(f"COSYSERVE_{service.upper()}_BACKEND")) or name
        for service, name in configuration.backends.items()
    }
    form = conversion(machine, backends["llm"])
    if form in SERVED_AS_IT_IS:
        told.environ[CONVERTED] = str(converted_directory(model, form, environ))
    mine = {name: value for name, value in told.environ.items() if name not in environ or (forced and name in configuration.environ)}
    return Plan(configuration, backends, mine, told.tier, told.why)


def chosen(
    machine: Machine, model: Path, *, will_build: bool, environ: Mapping[str, str] = os.environ
) -> tuple[Configuration, list[StepDown]]:
    """The first configuration that runs, and the ones above it. will_build: engines that are missing will be there."""
    steps: list[StepDown] = []
    for configuration in CONFIGURATIONS:
        if not configuration.automatic:
            continue
        reason = configuration.lacks(machine)
        if reason is None and configuration.needs_engines and not will_build and not built(configuration, machine, model, environ):
            reason = f"no engines for this model, GPU, driver and TensorRT; {BUILD}"
        if reason is None:
            return configuration, steps
        steps.append(StepDown(configuration.name, reason))
    raise AssertionError("the last configuration lacks nothing")


def forced(name: str, machine: Machine) -> Configuration:
    """Raises SettingsError with the reason where it cannot run here."""
    configuration = BY_NAME[name]
    if reason := configuration.lacks(machine):
        raise SettingsError(f"--force-config {name}: {reason}")
    return configuration
