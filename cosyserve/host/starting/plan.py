"""Chooses the configuration and settings of a machine, and says why not a faster one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cosyserve.errors import SettingsError
from cosyserve.host.doctor.installation_checks import checkpoint_bytes, flow_and_vocoder
from cosyserve.host.hardware import Machine
from cosyserve.host.recommendation import Recommendation
from cosyserve.host.starting.configurations import BY_NAME, CONFIGURATIONS, Configuration
from cosyserve.host.starting.engine_builds import (
    BUILD,
    CONVERTED,
    PRECISION,
    SERVED_AS_IT_IS,
    conversion_target,
    converted_directory,
    engines_are_built,
)


@dataclass(frozen=True, kw_only=True)
class Plan(Recommendation):
    """What to start, and its settings."""

    configuration: Configuration
    backends: dict[str, str]
    """Of llm and token2wav."""

    @property
    def name(self) -> str:
        return self.configuration.name


def make_plan(
    configuration: Configuration,
    machine: Machine,
    model: Path,
    *,
    forced: bool,
    decoder_model: Path | None = None,
    environ: Mapping[str, str] = os.environ,
    noted: Mapping[str, str] | None = None,
) -> Plan:
    """The plan for a configuration. decoder_model: of flow and vocoder, where they are not those of
    `model`. Variables of the user have priority; forced: except those that
    define the configuration. noted: by service, the hosted engine that was measured to be faster,
    which replaces the engine of the configuration.
    """
    own = configuration.environ
    settings = configuration.settings(
        machine,
        checkpoint_bytes(model, decoder_model),
        flow_and_vocoder(model, decoder_model),
        {**environ, **own} if forced else {**own, **environ},
    )
    faster = {} if forced or not configuration.on_gpu else dict(noted or {})
    backends, why = configuration.backends, list(settings.why)
    for service in backends:
        named = None if forced else environ.get(f"COSYSERVE_{service.upper()}_BACKEND")
        if not named and service in faster:
            why.append(
                f"{service}: {faster[service]} was measured to be faster here than our own engine (cosyserve start "
                "--benchmark)"
            )
        backends[service] = named or faster.get(service) or backends[service]
    if backends["token2wav"] == faster.get("token2wav") == "tensorrt":
        settings.environ[PRECISION] = BY_NAME["trt+fp16"].environ[PRECISION]
    llm = environ.get("COSYSERVE_LLM_AUTO_FIRST", "") if backends["llm"] == "auto" else backends["llm"]
    form = conversion_target(machine, llm)
    if form in SERVED_AS_IT_IS:
        settings.environ[CONVERTED] = str(converted_directory(model, form, environ))
    mine = {
        name: value
        for name, value in settings.environ.items()
        if name not in environ or (forced and name in configuration.environ)
    }
    return Plan(configuration=configuration, backends=backends, tier=settings.tier, environ=mine, why=tuple(why))


def configurations_to_compare(
    machine: Machine,
    model: Path,
    *,
    will_build: bool,
    decoder_model: Path | None = None,
    environ: Mapping[str, str] = os.environ,
) -> tuple[list[Configuration], dict[str, str]]:
    """Configurations of hosted engines that can be measured, and by name why others cannot; none if
    the user has named an engine.
    """
    if any(environ.get(f"COSYSERVE_{service.upper()}_BACKEND") for service in ("llm", "token2wav")):
        return [], {}
    run_here = [hosted for hosted in CONFIGURATIONS if hosted.hosted and hosted.lacks(machine) is None]
    ready = [
        hosted
        for hosted in run_here
        if will_build or engines_are_built(hosted, machine, _weights(hosted, model, decoder_model), environ)
    ]
    missing = f"no engines for this model, GPU, driver and library; {BUILD}"
    return ready, {hosted.name: missing for hosted in run_here if hosted not in ready}


def _weights(hosted: Configuration, model: Path, decoder_model: Path | None) -> Path:
    """The directory that its engine of another library is made of."""
    return decoder_model or model if hosted.hosted == "token2wav" else model


def choose_configuration(machine: Machine) -> tuple[Configuration, dict[str, str]]:
    """The first configuration of our own engines that runs, and by name why those before it
    cannot.
    """
    skipped: dict[str, str] = {}
    for configuration in CONFIGURATIONS:
        if not configuration.automatic:
            continue
        reason = configuration.lacks(machine)
        if reason is None:
            return configuration, skipped
        skipped[configuration.name] = reason
    raise AssertionError("the last configuration lacks nothing")


def forced(name: str, machine: Machine) -> Configuration:
    """The configuration `name`. Raises SettingsError with the reason if it cannot run here."""
    configuration = BY_NAME[name]
    if reason := configuration.lacks(machine):
        raise SettingsError(f"--force-config {name}: {reason}")
    return configuration
