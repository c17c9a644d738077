"""A soak as an SVG: what every process holds, over time."""

from collections.abc import Sequence

from bench.whole_soak.samples import MEASURES, Sample
from tools.panels import Line, Panel, drawing

_MOST_POINTS = 120
_TITLES = ("resident memory, MB", "descriptors", "threads", "tasks of the event loop")


def svg(title: str, samples: Sequence[Sample]) -> str:
    """Raises ValueError without samples."""
    every = -(-len(samples) // _MOST_POINTS) or 1
    drawn = samples[::every]
    processes = [name for name in (drawn[0].held if drawn else ()) if all(name in one.held for one in drawn)]
    panels = [
        Panel(heading, [Line(name, [getattr(one.held[name], measure) for one in drawn]) for name in processes])
        for measure, heading in zip(MEASURES, _TITLES, strict=True)
    ]
    panels.append(Panel("requests that are over", [Line("all", [one.requests for one in drawn])]))
    return drawing(title, [one.second for one in drawn], panels)
