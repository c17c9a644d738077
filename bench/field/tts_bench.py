"""`python -m bench.field.tts_bench --checkout DIR`: nari-labs' tts_bench, as it is in a checkout of
https://github.com/nari-labs/benchmarks, against `/v1/audio/speech`: requests that arrive by chance,
sentences of our own in place of Seed-TTS's, no transcription. It asks for Python 3.12.

Exit status: 0 every request was answered in full, 1 one was not or a run failed, 2 bad arguments.
"""

import argparse
import asyncio
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

from bench.field.sentences import write
from cosyserve.commands.terminal.arguments import add_model, model_directory
from cosyserve.host.supervision.supervisor import local_deployment

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build" / "tts_bench"
PACKAGES = (
    "aiohttp==3.14.3",
    "click==8.4.2",
    "jiwer==4.0.0",
    "numpy==2.5.1",
    "pydantic==2.13.4",
    "whisper-normalizer==0.1.15",
)
"""What its uv.lock names for what its pyproject.toml asks for."""


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = argparse.ArgumentParser(
        prog="python -m bench.field.tts_bench", description="nari-labs' tts_bench, unmodified."
    )
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--checkout", type=Path, metavar="DIR", help="of github.com/nari-labs/benchmarks")
    what.add_argument("--sentences", type=Path, metavar="FILE", help="only write the sentences, as lines of JSON")
    add_model(options)
    options.add_argument("--server", metavar="URL", help="a running gateway, such as http://127.0.0.1:8080")
    options.add_argument("--voice", default="alloy", metavar="NAME", help="(default: %(default)s)")
    options.add_argument(
        "--rps",
        type=float,
        nargs="+",
        default=[0.3],
        metavar="N",
        help="requests a second, one run each (default: 0.3)",
    )
    options.add_argument("--warmup", default="20s", metavar="TIME", help="not measured (default: %(default)s)")
    options.add_argument("--duration", default="180s", metavar="TIME", help="measured (default: %(default)s)")
    options.add_argument("--seed", type=int, default=0, metavar="N", help="of arrivals and order (default: 0)")
    options.add_argument("--python", default="python3.12", metavar="PROGRAM", help="(default: %(default)s)")
    options.add_argument(
        "--out", type=Path, default=FOLDER / "results", metavar="DIR", help="(build/tts_bench/results)"
    )
    return options


def main(argv: Sequence[str] | None = None) -> int:
    top = parser()
    arguments = top.parse_args(argv)
    if arguments.sentences:
        print(write(arguments.sentences))
        return 0
    source = arguments.checkout.resolve() / "tts_bench" / "src"
    if not (source / "tts_bench").is_dir():
        top.error(f"{arguments.checkout} holds no tts_bench/src/tts_bench")
    try:
        return asyncio.run(_run(arguments, source, _environment(arguments.python)))
    except (OSError, subprocess.CalledProcessError) as error:
        print(f"bench.field.tts_bench: {error}", file=sys.stderr)
        return 1


def _environment(python: str) -> Path:
    """The interpreter of an environment with its packages, made first if it is not there. Raises
    OSError without Python 3.12, CalledProcessError for a pip that fails.
    """
    folder = FOLDER / "environment"
    inside, ready = folder / "bin" / "python", folder / ".ready"
    if not ready.exists() or ready.read_text() != "\n".join(PACKAGES):
        plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, "-m", "venv", folder], env=plain, check=True)
        subprocess.run([inside, "-m", "pip", "install", "--quiet", *PACKAGES], env=plain, check=True)
        ready.write_text("\n".join(PACKAGES))
    return inside


async def _run(arguments: argparse.Namespace, source: Path, python: Path) -> int:
    dataset = write(FOLDER / "sentences.jsonl")
    complete = True
    async with _gateway(arguments) as url:
        for rate in arguments.rps:
            out = (arguments.out / f"{time.strftime('%Y%m%d-%H%M%S')}-rps-{rate:g}").resolve()
            options = {
                "--target": "nari",
                "--base-url": url,
                "--voice": arguments.voice,
                "--dataset": str(dataset),
                "--rps": f"{rate:g}",
                "--warmup": arguments.warmup,
                "--duration": arguments.duration,
                "--seed": str(arguments.seed),
                "--output": str(out),
            }
            command = [str(python), "-m", "tts_bench", "run", *(word for pair in options.items() for word in pair)]
            # Nothing is written into the checkout: tts_bench notes whether it was changed.
            environ = {**os.environ, "PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"}
            process = await asyncio.create_subprocess_exec(*command, cwd=source.parent, env=environ)
            if await process.wait():
                return 1
            summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
            print(f"\n{line_of(summary)}\n{out}", flush=True)
            complete &= summary["successful_requests"] == summary["scheduled_requests"]
    return 0 if complete else 1


@contextlib.asynccontextmanager
async def _gateway(arguments: argparse.Namespace) -> AsyncIterator[str]:
    if arguments.server:
        yield arguments.server.rstrip("/")
        return
    async with local_deployment(model_directory(arguments.model), backend=None, http="127.0.0.1:0") as stack:
        yield f"http://{stack.http}"


def line_of(summary: dict[str, Any]) -> str:
    """The columns in which nari-labs publishes its reports."""

    def at(values: dict[str, Any], point: str) -> str:
        return "-" if values[point] is None else f"{values[point]:.0f} ms"

    audible, whole = summary["audible_ttfa_ms"], summary["end_to_end_ms"]
    return (
        f"RPS {summary['requested_rps']:g} (actual {summary['actual_rps']:.3f}): "
        f"{summary['successful_requests']} of {summary['scheduled_requests']} answered, "
        f"{summary['underrun_requests']} with an underrun, audible TTFA p50 {at(audible, 'p50')}, "
        f"p95 {at(audible, 'p95')}, E2E p95 {at(whole, 'p95')}, at most {summary['peak_in_flight']} at once"
    )


if __name__ == "__main__":
    sys.exit(main())
