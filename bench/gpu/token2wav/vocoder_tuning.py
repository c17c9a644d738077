"""The part that finds the tiles of the vocoder's convolutions: every kind by itself, for several
batches.
"""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from services.token2wav.gpu.windowed_vocoder.windows import WINDOW_FRAMES, Render

from bench.gpu.timing import timed
from bench.gpu.token2wav.random_models import DEVICE, RUN, graphed, random_vocoder
from services.token2wav.gpu.device.launcher import MANY, SOUND_TILES, Grid, Launcher, Tile, Tiles
from services.token2wav.gpu.windowed_vocoder.vocoder import WindowedVocoder

Launched = tuple[Any, Grid, tuple[Any, ...], dict[str, Any]]
BATCHES = (1, 4, 8, 16, 32)
CHOICES = [
    *(Tile(*shape, described=True) for shape in (
        (64, 32, 64, 4, 4), (64, 32, 128, 4, 4), (64, 64, 64, 4, 3), (64, 64, 64, 4, 4), (64, 64, 64, 4, 6),
        (64, 64, 128, 4, 3),
        (64, 128, 64, 4, 3), (64, 128, 64, 4, 4), (64, 128, 128, 4, 3), (128, 64, 64, 4, 3), (128, 64, 64, 4, 4),
        (128, 64, 64, 8, 3),
        (128, 64, 64, 8, 4), (128, 64, 128, 8, 3), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 128, 128, 8, 3),
        (256, 64, 64, 8, 3),
        (256, 64, 64, 8, 4), (64, 256, 64, 8, 3), (64, 256, 64, 4, 3), (128, 256, 64, 8, 3), (256, 128, 64, 8, 3),
    )),
    Tile(32, 32, 128, 4, 4), Tile(32, 64, 128, 4, 4), Tile(32, 64, 64, 4, 4), Tile(64, 32, 64, 4, 4), Tile(64, 64, 64),
    Tile(64, 64, 128),
    Tile(64, 32, 128, 4, 3), Tile(128, 32, 64), Tile(64, 64, 64, 8),
]  # fmt: skip


class CompileShare(Launcher):
    """Launches one in `count` kinds of kernels, so that several processes compile them all."""

    def __init__(self, mine: int, count: int, tiles: Tiles) -> None:
        super().__init__(True, tiles)
        object.__setattr__(self, "_mine", (mine, count, {}))

    def __call__(self, kernel: Any, grid: Grid, *arguments: Any, **constants: Any) -> None:
        mine, count, seen = self._mine  # type: ignore[attr-defined]
        at = seen.setdefault((kernel.fn.__name__, *sorted(constants.items())), len(seen))
        if at % count == mine:
            super().__call__(kernel, grid, *arguments, **constants)


class _Recorded(Launcher):
    """Keeps what is launched, by the kind of tile that was asked for just before."""

    def __init__(self, tiles: Tiles) -> None:
        super().__init__(True, tiles)
        object.__setattr__(self, "launches", {})
        object.__setattr__(self, "rows", {})
        object.__setattr__(self, "_kind", [""])

    def tile(self, kind: str, rows: int, table: Tiles | None = None) -> Tile:
        self._kind[0] = kind  # type: ignore[attr-defined]
        self.rows[kind] = rows  # type: ignore[attr-defined]
        return super().tile(kind, rows, table)

    def __call__(self, kernel: Any, grid: Grid, *arguments: Any, **constants: Any) -> None:
        self.launches.setdefault(self._kind[0], []).append((kernel, grid, arguments, constants))  # type: ignore[attr-defined]
        self._kind[0] = ""  # type: ignore[attr-defined]


def sound_tuning(out: Path, precision: str = "float16") -> dict[str, Any]:
    """Microseconds of the launches of one kind in a window of 50 frames, by batch and tile; the
    best are written for --tiles.
    """
    config, weights = random_vocoder()
    windowed = WindowedVocoder(
        config, weights, DEVICE, slots=40, launch=Launcher(True), precision=precision, side_streams=False
    )
    fastest: dict[str, dict[int, list[tuple[float, Tile]]]] = {}
    lengths: dict[str, dict[int, int]] = {}
    plain = Launcher(True)
    # numbers like those of real sound, and not zeros, are multiplied below
    if not RUN.compile_only:
        windowed.run([Render(at + 1, 0, 50, None, at, 0) for at in range(32)], WINDOW_FRAMES)
    for at, tile in enumerate(CHOICES):
        if RUN.compile_only and at % RUN.shard[1] != RUN.shard[0]:
            continue
        for batch in (32,) if RUN.compile_only else BATCHES:
            recorded = _Recorded({kind: ((MANY, tile),) for kind in SOUND_TILES if kind.startswith("sound")})
            windowed._network.launch = recorded
            windowed.run([Render(at + 1, 0, 50, None, at, 0) for at in range(batch)], WINDOW_FRAMES)
            for kind, launched in recorded.launches.items():  # type: ignore[attr-defined]
                one, small = launched[0][3], min(tile.columns, tile.rows) < 64
                if (
                    kind.split()[1] in ("post", "down")
                    or tile.columns > one["OUT"]
                    or tile.inner > one["C"]
                    or tile.described != one["DESCRIBED"]
                ):
                    continue
                if small and batch > 4 and not RUN.compile_only:
                    continue
                try:
                    work = _again(plain, launched)
                    if RUN.compile_only:
                        work()
                    else:
                        spent = 1000 * timed(graphed(work), 5, 2)
                        fastest.setdefault(kind, {}).setdefault(batch, []).append((spent, tile))
                        lengths.setdefault(kind, {})[batch] = recorded.rows[kind]  # type: ignore[attr-defined]
                except Exception as error:
                    print(kind, tile, "failed:", str(error).splitlines()[0][:100], flush=True)
    torch.cuda.synchronize()
    rows: dict[str, Any] = {}
    for kind, batches in fastest.items():
        for batch, choices in batches.items():
            choices.sort(key=lambda pair: pair[0])
            rows[f"{kind} {batch}"] = [(spent, vars(tile)) for spent, tile in choices]
            best = ", ".join(
                f"{spent:.1f} {t.rows}x{t.columns}x{t.inner} w{t.warps} s{t.stages} {'d' * t.described}"
                for spent, t in choices[:5]
            )
            print(f"{kind:17s} {batch:2d} windows: {best} ... worst {choices[-1][0]:.1f}", flush=True)
        (out / f"tiles-{kind}.json").write_text(json.dumps(_rules(batches, lengths[kind])))
    for batch in BATCHES if fastest else ():
        print(
            f"best of all, {batch:2d} windows: {sum(batches[batch][0][0] for batches in fastest.values()):.0f} us",
            flush=True,
        )
    return rows


def _rules(batches: dict[int, list[tuple[float, Tile]]], lengths: dict[int, int]) -> list[tuple[int, dict[str, Any]]]:
    """The best tiles, the one before where it is as good within 2 %; limits are half way between
    the lengths that were measured.
    """
    rules: list[tuple[int, Tile]] = []
    ordered = sorted(batches)
    for batch, after in zip(ordered, [*ordered[1:], None], strict=True):
        best, tile = batches[batch][0]
        times = [spent for spent, other in batches[batch] if rules and other == rules[-1][1]]
        if times and times[0] < 1.02 * best:
            tile = rules.pop()[1]
        rules.append((MANY if after is None else math.isqrt(lengths[batch] * lengths[after]), tile))
    return [(most, vars(tile)) for most, tile in rules]


PITCH_CHOICES = [
    Tile(16, 16, 32, 4, 4), Tile(32, 16, 32, 4, 4), Tile(32, 32, 32, 4, 4), Tile(32, 64, 32, 4, 3),
    Tile(64, 32, 32, 4, 3),
    Tile(64, 64, 32, 4, 3), Tile(64, 64, 32, 8, 3), Tile(32, 32, 64, 4, 3), Tile(16, 32, 64, 4, 4),
    Tile(128, 64, 32, 8, 3),
]  # fmt: skip


def pitch_tuning(out: Path) -> dict[str, Any]:
    """Microseconds of the five float64 layers that make the pitch."""
    config, weights = random_vocoder()
    windowed = WindowedVocoder(config, weights, DEVICE, slots=40, launch=Launcher(True))
    plain, rows = Launcher(True), {}
    for batch in BATCHES:
        choices = []
        for tile in PITCH_CHOICES:
            recorded = _Recorded({"pitch": ((MANY, tile),)})
            windowed._pitch._launch = recorded
            windowed.run([Render(at + 1, 0, 50, None, at, 0) for at in range(batch)], WINDOW_FRAMES)
            layers = [each for each in recorded.launches["pitch"] if each[0].fn.__name__ == "pitch_layer"]  # type: ignore[attr-defined]
            choices.append((1000 * timed(graphed(_again(plain, layers)), 5, 2), tile))
        choices.sort(key=lambda pair: pair[0])
        rows[f"pitch {batch}"] = [(spent, vars(tile)) for spent, tile in choices]
        best = ", ".join(
            f"{spent:.1f} {t.rows}x{t.columns}x{t.inner} w{t.warps} s{t.stages}" for spent, t in choices[:5]
        )
        print(f"pitch {batch:2d} windows: {best} ... worst {choices[-1][0]:.1f}", flush=True)
    return rows


def _again(plain: Launcher, launched: list[Launched]) -> Callable[[], None]:
    def work() -> None:
        for kernel, grid, arguments, constants in launched:
            plain(kernel, grid, *arguments, **constants)

    return work
