"""Plots of a soak, where there is something to draw with."""

import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any


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
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(9, 4.5))
    for name, points in soak["samples"].items():
        minutes, held = [second / 60 for second, _ in points], [megabytes for _, megabytes in points]
        slope = soak["slopes"].get(name)
        axes.plot(minutes, held, label=name if slope is None else f"{name}, {slope:+.2f} MB a minute")
    axes.set(xlabel="minutes", ylabel="MB", yscale="log", title=title)
    axes.yaxis.set_major_formatter("{x:g}")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)
