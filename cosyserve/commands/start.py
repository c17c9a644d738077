"""`cosyserve start`: examines this machine, prepares a suitable configuration, measures it if
asked, then serves as `cosyserve up` does.
"""

import argparse
import asyncio
import functools
import os
from dataclasses import replace
from pathlib import Path

from cosyserve.commands.terminal.arguments import (
    add_gpu_sharing,
    add_model,
    add_serving,
    decoder_directory,
    model_directory,
    model_pair,
    serving,
)
from cosyserve.engines.benchmark_note import LLM, TOKEN2WAV
from cosyserve.errors import SettingsError
from cosyserve.host.doctor.examination import examine
from cosyserve.host.doctor.finding import State
from cosyserve.host.hardware import Machine
from cosyserve.host.starting.configurations import BY_NAME, CONFIGURATIONS
from cosyserve.host.starting.engine_builds import build_commands, precompile
from cosyserve.host.starting.measurement import Trial, read_notes, run_trial, table, write_notes
from cosyserve.host.starting.plan import Plan, choose_configuration, configurations_to_compare, forced, make_plan
from cosyserve.host.starting.serving import StopSignals, serve, strictness
from cosyserve.host.supervision.supervisor import local_deployment

STOPPED = 130
"""Exit status after Ctrl-C or SIGTERM before the services run; 0 after that."""
_KERNELS = "COSYSERVE_TOKEN2WAV_GPU_ENGINE"
_HOSTED = {*LLM.hosted, *TOKEN2WAV.hosted}
HELP = "choose settings for this machine, prepare engines, measure, serve"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model(parser)
    add_gpu_sharing(parser)
    add_serving(parser)
    parser.add_argument(
        "--precompile",
        action="store_true",
        help="build the engines that are missing, and compile kernels, before serving",
    )
    parser.add_argument(
        "--benchmark",
        action="store_true",
        help="speak a sentence first: first sound and real-time factor; "
        "engines of other libraries are measured as well",
    )
    parser.add_argument(
        "--test-all", action="store_true", help="measure every configuration that runs here, then serve the fastest"
    )
    parser.add_argument("--force-config", choices=tuple(BY_NAME), help="this one, or an error that says what it lacks")
    parser.add_argument("--no-serve", action="store_true", help="stop when everything is prepared and measured")


async def run(arguments: argparse.Namespace) -> int:
    if arguments.test_all and arguments.force_config:
        raise SettingsError("--test-all measures every configuration, --force-config takes one: give one of them")
    stop = StopSignals()
    try:
        plan = await _prepared(arguments)
    except asyncio.CancelledError:
        if not stop.received:
            raise
        _print("stopped; finished steps are kept")
        return STOPPED
    return 1 if plan is None else await _serve(arguments, plan)


async def _prepared(arguments: argparse.Namespace) -> Plan | None:
    """The plan to serve, with its engines built and measured if asked; None if no configuration
    spoke.
    """
    model, decoder = model_directory(arguments.model), decoder_directory(arguments)
    model_pair(arguments)  # a pair that does not fit is refused before anything is examined
    examination = await asyncio.to_thread(examine, model, arguments.listen, decoder_model=decoder)
    for finding in examination.findings:
        if finding.state is State.PROBLEM:
            _print(f"problem: {finding.check}: {finding.observed}; {finding.means}; {finding.fix}")
    machine = examination.machine
    plans = await asyncio.to_thread(_plans, arguments, machine, model)
    if decoder is not None:
        plans = [_for_pair(plan) for plan in plans]
    if arguments.precompile:
        for plan in plans:
            steps = await asyncio.to_thread(
                build_commands, plan.backends, machine, model, {**os.environ, **plan.environ}, decoder
            )
            await precompile(steps, _print)
    if not (arguments.benchmark or arguments.test_all):
        if arguments.precompile and arguments.no_serve:
            await _warm(plans[0], model, arguments)
        return plans[0]
    trials = []
    for plan in plans:
        _print(f"measuring {plan.name}: {plan.configuration.what}")
        report = functools.partial(_print, before="  ")
        trials.append(await run_trial(plan, model, arguments.gpu_sharing, report, _environ(arguments)))
    _show(trials)
    noted = await asyncio.to_thread(_noted, trials, model, decoder)
    spoken = [trial for trial in trials if trial.measured is not None]
    if not spoken:
        _print("no configuration spoke; cosyserve doctor says what is wrong")
        return None
    if noted:  # what was measured separately for each service is served together
        ours, _ = choose_configuration(machine)
        plan = await asyncio.to_thread(
            make_plan, ours, machine, model, forced=False, decoder_model=decoder, noted=noted
        )
        return _for_pair(plan) if decoder is not None else plan
    by_name = {plan.name: plan for plan in plans}
    # A plain start would use our own engine, too: no note is written for a hosted one that is
    # hardly faster.
    own = [trial for trial in spoken if not set(by_name[trial.name].backends.values()) & _HOSTED]
    fastest = min(own if own and not arguments.test_all else spoken, key=lambda trial: trial.real_time_factor)
    return by_name[fastest.name]


def _for_pair(plan: Plan) -> Plan:
    """The plan for a model of two directories, whose flow may have no kernels of our own: token2wav
    takes them if there are some.
    """
    own = {name: value for name, value in plan.environ.items() if (name, value) != (_KERNELS, "paged")}
    return replace(plan, environ=own)


def _environ(arguments: argparse.Namespace) -> dict[str, str]:
    return {**strictness(arguments.strict), **model_pair(arguments)}


def _noted(trials: list[Trial], model: Path, decoder: Path | None) -> dict[str, str]:
    """By service, the hosted engine that is faster here; prints it and writes the notes."""
    try:
        preferred = write_notes(trials, model, decoder_model=decoder)
    except OSError as error:
        _print(f"the measurements cannot be saved: {error}")
        return {}
    for service, engine in preferred.items():
        _print(f"noted for backend auto: {service}: {engine or 'our own engine'} is the faster one here")
    return {service: engine for service, engine in preferred.items() if engine}


def _plans(arguments: argparse.Namespace, machine: Machine, model: Path) -> list[Plan]:
    """The plans to prepare and measure; without measuring, the first is served."""
    planned = functools.partial(make_plan, machine=machine, model=model, decoder_model=decoder_directory(arguments))
    if arguments.test_all:
        reasons = {configuration.name: configuration.lacks(machine) for configuration in CONFIGURATIONS}
        for name, reason in reasons.items():
            if reason:
                _print(f"{name} cannot run here: {reason}")
        return [planned(BY_NAME[name], forced=True) for name in BY_NAME if reasons[name] is None]
    if arguments.force_config:
        return [planned(forced(arguments.force_config, machine), forced=True)]
    configuration, skipped = choose_configuration(machine)
    for name, reason in skipped.items():
        if arguments.strict:
            raise SettingsError(f"--strict: {name} cannot run: {reason}")
        _print(f"not {name}: {reason}")
    if not arguments.benchmark:
        noted = read_notes(model, decoder_model=decoder_directory(arguments))
        return [planned(configuration, forced=False, noted=noted)]
    others, left = configurations_to_compare(
        machine, model, will_build=arguments.precompile, decoder_model=decoder_directory(arguments)
    )
    for name, reason in left.items():
        _print(f"{name} is not measured: {reason}")
    return [
        planned(configuration, forced=False),
        *(planned(other, forced=True) for other in others if configuration.on_gpu),
    ]


async def _warm(plan: Plan, model: Path, arguments: argparse.Namespace) -> None:
    """Start the services once: kernels are compiled, and cached, before a service is SERVING."""
    environ = {**plan.environ, **_environ(arguments)}
    async with local_deployment(
        model, backend=plan.backends, environ=environ, gpu_sharing=arguments.gpu_sharing, report=_print
    ):
        _print(f"{plan.name} has started once: its kernels are compiled and kept")


async def _serve(arguments: argparse.Namespace, plan: Plan) -> int:
    _print(f"configuration {plan.name}: {plan.configuration.what}; settings for {plan.tier}")
    for line in plan.why:
        _print(f"  # {line}")
    backends = {f"COSYSERVE_{service.upper()}_BACKEND": backend for service, backend in plan.backends.items()}
    for name, value in sorted((backends | plan.environ).items()):
        _print(f"  {name}={value}")
    if arguments.no_serve:
        return 0
    deployment = {"backend": plan.backends, **serving(arguments, {**plan.environ, **model_pair(arguments)})}
    return await serve(model_directory(arguments.model), _print, **deployment)


def _show(trials: list[Trial]) -> None:
    if len(trials) == 1 and (measured := trials[0].measured) is not None:
        print(measured.table(), flush=True)
    print(table(trials), flush=True)


def _print(line: str, before: str = "") -> None:
    print(before + line, flush=True)
