"""What the commands of this folder share: options, and how they end."""

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from cosyserve.errors import CosyserveError, ModelError, SettingsError
from cosyserve.host.supervision.supervisor import DeploymentFailed


def add_speaking(options: argparse.ArgumentParser, *, count: int | None = None) -> None:
    """--count, --keep, --threads. count: sentences that are spoken by default, None for all."""
    default = "all" if count is None else "%(default)s"
    options.add_argument(
        "--count", type=int, default=count, metavar="N", help=f"only N of them, evenly spread (default: {default})"
    )
    options.add_argument("--keep", type=Path, metavar="DIR", help="write the recordings to DIR/VOICE/001.wav...")
    options.add_argument("--threads", type=int, default=1, metavar="N", help="of the recogniser (default: %(default)s)")


def names(text: str) -> list[str]:
    """Names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def reported(table: str, figures: str, exceeded: Sequence[str], path: Path | None) -> int:
    """Print the table and, on stderr, a line for each limit that is exceeded; `figures`, JSON, go
    into `path`. Returns the exit status: 1 when a limit is exceeded.
    """
    print(table)
    if path:
        path.write_text(figures + "\n", encoding="utf-8")
    for line in exceeded:
        print(line, file=sys.stderr)
    return 1 if exceeded else 0


@contextlib.contextmanager
def ending(parser: argparse.ArgumentParser, *, bad_arguments: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Errors in the block end the process with a line on stderr: `bad_arguments` with status 2,
    others by which speaking or measuring fails with status 1.
    """
    try:
        yield
    except bad_arguments as error:
        parser.error(str(error))
    except (CosyserveError, ModelError, SettingsError, DeploymentFailed, OSError, ValueError) as error:
        parser.exit(1, f"{parser.prog.rpartition('.')[2]}: {error}\n")
