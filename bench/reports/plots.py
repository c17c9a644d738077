"""Plots of loads and of a soak, where matplotlib is installed."""

import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from bench.reports.serving_report import Level
from cosyserve.client.types import STAGES


def can_plot() -> bool:
    """Whether matplotlib is there; says so if not."""
    if find_spec("matplotlib") is None:
        print("no plots: matplotlib is not installed; --report draws them later, or elsewhere", file=sys.stderr)
        return False
    return True


def memory(path: Path, title: str, soak: Mapping[str, Any]) -> None:
    """Megabytes of every process, and of the GPU, over the minutes of a soak. soak: what
    `bench.load_soak` keeps.
    """
    figure, axes = _subplots(figsize=(9, 4.5))
    for name, points in soak["samples"].items():
        minutes, held = [second / 60 for second, _ in points], [megabytes for _, megabytes in points]
        slope = soak["slopes"].get(name)
        axes.plot(minutes, held, label=name if slope is None else f"{name}, {slope:+.2f} MB a minute")
    axes.set(xlabel="minutes", ylabel="MB", yscale="log", title=title)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    _save(figure, path)


def plot(path: Path, machine: str, levels: Sequence[Level]) -> None:
    """Latency against streams, one line for each percentile and way of arriving, and where the
    first sound's milliseconds went.
    """
    from matplotlib.ticker import LogLocator, StrMethodFormatter

    figure, (latency, waterfall) = _subplots(1, 2, figsize=(12, 4.5))
    for arrivals, style in (("closed", "-"), ("poisson", "--"), ("listening", ":")):
        these = [one for one in levels if one.arrivals == arrivals]
        for name in ("p50", "p95", "p99") if these else ():
            latency.plot(
                [one.streams for one in these],
                [getattr(one, name) for one in these],
                style,
                marker="o",
                label=f"{arrivals} {name}",
            )
    latency.set(xscale="log", yscale="log", xlabel="streams", ylabel="first byte (ms)", title=machine)
    loads = {one.streams for one in levels}
    latency.set_xticks(sorted({load for load in loads if load.bit_count() == 1} or loads))
    latency.minorticks_off()
    latency.yaxis.set_minor_locator(LogLocator(subs=(2, 5)))
    for ticks in (
        latency.xaxis.set_major_formatter,
        latency.yaxis.set_major_formatter,
        latency.yaxis.set_minor_formatter,
    ):
        ticks(StrMethodFormatter("{x:g}"))
    latency.grid(visible=True, which="both", alpha=0.3)
    latency.legend()
    shown = [one for one in levels if one.arrivals == "closed"] or list(levels)
    base = np.zeros(len(shown))
    for stage in STAGES:
        heights = np.asarray([one.stages[stage] for one in shown])
        waterfall.bar([str(one.streams) for one in shown], heights, bottom=base, label=stage)
        base += heights
    rest = np.maximum(np.asarray([one.p50 for one in shown]) - base, 0.0)
    waterfall.bar([str(one.streams) for one in shown], rest, bottom=base, label="waiting and transport")
    waterfall.set(xlabel="streams", ylabel="first byte, medians (ms)", title="where the milliseconds went")
    waterfall.legend()
    _save(figure, path)


def _subplots(*shape: int, figsize: tuple[float, float]) -> Any:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    return plt.subplots(*shape, figsize=figsize)


def _save(figure: Any, path: Path) -> None:
    from matplotlib import pyplot as plt

    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
