"""Tables of the benchmark report for each stage measured alone.

Every function receives the results of all parts of the benchmark, by name of the part, and returns
the lines of its tables. Results that were not measured are left out.
"""

import re
from collections.abc import Mapping
from typing import Any

from bench.gpu.timing import LowerBounds
from bench.reports.tables import table

BATCHES = (1, 2, 4, 8, 16, 32)
"""Rows of the flow table, in units: the blocks that one pass computes together."""
BLOCKS = (1, 4, 14, 34)
"""Columns of the flow table: blocks of a stream up to and including the one that is computed."""
WINDOW_FRAMES = 50
"""Mel frames of the vocoder window for which `LowerBounds.vocoder` holds."""
Results = Mapping[str, Any]


def ceilings(results: Results) -> list[str]:
    """Measured peak rates of the GPU: memory bandwidth, matrix products, launch of a kernel."""
    measured = results.get("ceilings", {}).get("ceilings", {})
    names = {
        "copy_terabytes_per_second": "copy (read and written), TB/s", "read_terabytes_per_second": "read, TB/s",
        "bf16_teraflops": "bfloat16 product, TFLOP/s", "kernel_us": "smallest kernel of a graph, us",
    }  # fmt: skip
    return table(("ceiling", ""), ((text, measured[name]) for name, text in names.items() if name in measured))


def speech_tokens(results: Results) -> list[str]:
    """Milliseconds of a decode step by batch size: the CUDA graph alone with 300 and 900 positions
    in the cache, and through the engine. A column "floor" is the lower bound from memory bandwidth
    as a percentage of the time before it.
    """
    steps = results.get("llm-steps", {}).get("steps", {}).get("steps", [])
    alone = {(one["rows"], one["length"]): one for one in steps}
    engine = {one["sentences"]: one for one in results.get("llm-engine", {}).get("engine", {}).get("together", [])}
    lines = []
    for rows in sorted({rows for rows, _ in alone} | set(engine)):
        cells: list[Any] = [rows]
        for length in (300, 900):
            one = alone.get((rows, length))
            cells += [one["us"] / 1000, f"{one['floor_us'] / one['us']:.0%}"] if one else [None, None]
        through = engine.get(rows)
        cells += (
            [through["step_ms"], f"{through['share_of_floor']:.0%}", through["step_p99_ms"]] if through else [None] * 3
        )
        cells += [through["first_token_ms"], through["last_first_token_ms"]] if through else [None] * 2
        lines.append(cells)
    head = (
        "rows", "graph, 300 behind, ms", "floor", "graph, 900 behind, ms", "floor", "engine, ms", "floor", "p99, ms",
        "first token, ms",
        "last first token, ms",
    )  # fmt: skip
    return table(head, lines)


def one_launch(results: Results) -> list[str]:
    """Milliseconds of a decode step of one row as one launch and as launches: the CUDA graph alone,
    and between two tokens of the engine.
    """
    measured = results.get("llm-one-launch", {}).get("one-launch", {})
    lines: list[tuple[str, float, float]] = [
        (f"graph, {one['length']} behind", one["one_launch_us"] / 1000, one["launches_us"] / 1000)
        for one in measured.get("steps", [])
    ]
    if engine := measured.get("engine"):
        lines.append(("engine", engine["one_launch_ms"], engine["launches_ms"]))
    return table(("step of one sentence", "one launch, ms", "launches, ms"), lines)


def prompts(results: Results) -> list[str]:
    """Milliseconds of a prefill chunk, and of the time to the first token, by prompt length."""
    chunks = results.get("llm-steps", {}).get("steps", {}).get("chunks", [])
    alone = results.get("llm-engine", {}).get("engine", {}).get("alone", [])
    lines = [(f"chunk of {one['count']} positions from {one['first']}", one["us"] / 1000) for one in chunks]
    return table(
        ("prompt", "ms"),
        [*lines, *((f"{one['positions']} positions to the first token", one["first_token_ms"]) for one in alone)],
    )


def flow(results: Results, floors: LowerBounds | None) -> list[str]:
    """Milliseconds of a pass of the flow by batch and by blocks per stream, of a recomputation
    without cached blocks, and of one stream with the host's work. floor: lower bound in
    milliseconds.
    """
    passes, recomputed = results.get("flow", {}), results.get("recompute", {})
    lines: list[list[Any]] = []
    for batch in sorted({*BATCHES, *map(int, recomputed)}):
        times = [passes.get(f"{batch} {blocks}") for blocks in BLOCKS]
        if any(times) or str(batch) in recomputed:
            per_unit = times[1] / batch if times[1] else None
            lines.append([batch, *times, per_unit, floors.flow(batch) if floors else None, recomputed.get(str(batch))])
    head = (
        "units",
        *(f"{blocks} blocks, ms" for blocks in BLOCKS),
        "a unit at 4 blocks",
        "floor",
        "so many blocks made again, ms",
    )
    firsts = [
        (f"first chunk behind 87 prompt tokens, {text}", passes.get(name))
        for name, text in (("cold", "nothing kept"), ("kept", "prompt kept"))
    ]
    readable = list(results.get("readable", {}).items())
    return [
        *table(head, lines),
        *table(
            ("one stream, host included", "ms"),
            [*(one for one in firsts if one[1]), *((f"readable path, {name}", ms) for name, ms in readable)],
        ),
    ]


def vocoder(results: Results, floors: LowerBounds | None) -> list[str]:
    """Milliseconds of a vocoder pass by arithmetic, frames of a window, and windows in a batch."""
    lines = [
        (kind, frames, batch, ms, floors.vocoder(batch) if floors and frames == WINDOW_FRAMES else None)
        for (kind, frames, batch), ms in windows(results).items()
    ]
    return table(("arithmetic", "frames", "windows", "ms", "floor in float16"), lines)


def windows(results: Results) -> dict[tuple[str, int, int], float]:
    """Milliseconds of a vocoder pass by (arithmetic, frames of a window, windows in a batch), in
    the form that the service uses: branches of the network run in parallel.
    """
    # The name of a result with sequential branches has more words and does not match.
    pairs = ((re.fullmatch(r"(\w+) (\d+) (\d+)", name), ms) for name, ms in results.get("vocoder", {}).items())
    return {(match[1], int(match[2]), int(match[3])): ms for match, ms in pairs if match}


def memory(results: Results) -> list[str]:
    """GPU memory in MB, and cost of token2wav by duration of the sentence in seconds."""
    one = results.get("lengths", {})
    lines: list[tuple[str, Any]] = [
        (text, one[name])
        for name, text in (
            ("context_megabytes", "CUDA context of one process"), ("llm_megabytes", "speech-token engine, 64 rows"),
            ("llm_pool_megabytes", "of it keys and values"), ("token2wav_megabytes", "token2wav"),
            ("token2wav_pool_megabytes", "of it pages (set here to 14 GiB)"),
        )
        if name in one
    ]  # fmt: skip
    if "llm_stream" in one:
        stream = one["llm_stream"]
        lines.append(("keys and values reserved for one sentence of 20 text ids and its prompt", stream["bytes"] / 1e6))
    costs = [
        (f"{key} s", one[key]["milliseconds_per_second"], one[key]["state_megabytes"])
        for key in ("4", "10", "30")
        if key in one
    ]
    return [
        *table(("GPU memory", "MB"), lines),
        *table(("sentence", "token2wav, ms for a second of audio", "state of the stream, MB"), costs),
    ]


def correctness(results: Results) -> list[str]:
    """How far the fast implementations differ from the readable reference implementations, and
    batched from single streams.
    """
    lines: list[tuple[str, str]] = []
    for kind, checks in results.get("llm-same", {}).get("same", {}).items():
        lines += [
            (
                f"speech tokens, {kind}, {what}",
                f"{one['equal']} of {one['of']} sentences equal, {one['agreed_tokens']} tokens up to the first that is "
                "not",
            )
            for what, one in checks.items()
        ]
    lines += [
        (f"mel, {name}", f"relative error {one[0]:.1e}, mean distance {one[1]:.1e}")
        for name, one in results.get("mel", {}).items()
    ]
    lines += [
        (f"vocoder, {name.removesuffix(' error')}, against the readable one", f"relative error {one[0]:.1e}")
        for name, one in results.get("vocoder", {}).items() if name.endswith("error")
    ]  # fmt: skip
    for number, errors in results.get("samples", {}).items():
        texts = ("against the readable vocoder", "alone against together", "kept prompt against none")
        lines.append(
            (
                f"samples of stream {number}",
                ", ".join(f"{text} {error:.1e}" for text, error in zip(texts, errors, strict=False)),
            )
        )
    return table(("compared", "found"), lines)
