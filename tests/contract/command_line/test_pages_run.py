"""What the pages show, run as it stands: commands against a running system, those of the engines
page on the bundled model, and the examples of the client's page.
"""

import asyncio
import doctest
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cosyserve.commands.model import _STEPS
from cosyserve.host.supervision.supervisor import local_deployment

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```bash\n(.*?)^```", re.MULTILINE | re.DOTALL)
PLAYED = ("aplay", "--play")
"""Lines that need a player and a sound card."""


def commands(page: str, program: str) -> list[str]:
    """Lines of the page's shell blocks that begin with `program`."""
    lines = [line for block in BLOCK.findall((ROOT / page).read_text(encoding="utf-8")) for line in block.splitlines()]
    return [line for line in lines if line.startswith(program) and not any(word in line for word in PLAYED)]


def run(command: str, endpoint: str, directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", command.replace("127.0.0.1:50051", endpoint)],
        cwd=directory,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    "command",
    [
        line
        for page in ("docs/protocol.md", "docs/apis/riva.md", "docs/apis/cosyvoice.md")
        for line in commands(page, "grpcurl")
    ],
)
def test_grpcurl_lines_of_the_pages(command: str, endpoint: str, tmp_path: Path) -> None:
    answer = run(command, endpoint, tmp_path)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.strip()


@pytest.mark.parametrize("command", commands("README.md", ".venv/bin/cosyserve"))
def test_cosyserve_lines_of_the_readme(command: str, endpoint: str, tmp_path: Path) -> None:
    answer = run(f"{command.removeprefix('.venv/bin/')} --server {endpoint}", endpoint, tmp_path)
    assert answer.returncode == 0, answer.stderr
    for file in re.findall(r"-o (\S+\.wav)", command):
        assert (tmp_path / file).stat().st_size > 10_000


LINES = commands("docs/engines.md", "cosyserve model")
NEEDS_A_GPU = ("cosyserve model build models", "cosyserve model build token2wav")
MIRRORED = (
    "cosyvoice2.yaml",
    "llm.pt",
    "flow.pt",
    "hift.pt",
    "campplus.onnx",
    "speech_tokenizer_v2.onnx",
    "CosyVoice-BlankEN/config.json",
)
TOKENIZER = ("vocab.json", "merges.txt", "tokenizer_config.json")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with the bundled model, and a mirror: that model with the small one's
    tokenizer, which it has none of.
    """
    folder = tmp_path_factory.mktemp("page")
    (folder / "models").symlink_to(ROOT / "models")
    for name in MIRRORED:
        target = folder / "build" / "mirror" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(ROOT / "models" / "demo" / name)
    for name in TOKENIZER:
        (folder / "build" / "mirror" / "CosyVoice-BlankEN" / name).symlink_to(
            ROOT / "tests" / "golden" / "tiny" / "CosyVoice-BlankEN" / name
        )
    return folder


def test_the_page_shows_every_step_that_runs_without_a_gpu() -> None:
    assert {line.split()[2] for line in LINES} >= {
        "download",
        "inspect",
        "convert",
        "build",
        "prune",
        "export",
        "verify",
    }
    assert {line.split()[2] for line in LINES} <= set(_STEPS)


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith(NEEDS_A_GPU)])
def test_lines_of_the_page(line: str, place: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(place / "cache")}
    command = [sys.executable, "-m", *line.split("#")[0].split()]
    done = subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


PAGE = ROOT / "docs" / "client.md"
ADDRESS = "127.0.0.1:50051"
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
FLAGS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


def failures(text: str, examples_at_least: int) -> str:
    """What differs, or nothing."""
    report: list[str] = []
    examples = doctest.DocTestParser().get_doctest(text, {}, "client.md", str(PAGE), 0)
    assert len(examples.examples) >= examples_at_least
    doctest.DocTestRunner(optionflags=FLAGS).run(examples, out=report.append)
    return "".join(report)


async def test_the_examples_print_what_the_page_says() -> None:
    blocks = FENCE.findall(PAGE.read_text(encoding="utf-8"))
    interactive = "\n".join(block for block in blocks if block.startswith(">>>"))
    (program,) = [block for block in blocks if not block.startswith(">>>")]
    async with local_deployment(ROOT / "models" / "demo", listen="127.0.0.1:0") as deployment:
        here = deployment.address
        assert not await asyncio.to_thread(failures, interactive.replace(ADDRESS, here), 30)
        assert ADDRESS in program
        ended = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", program.replace(ADDRESS, here)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not ended.returncode, ended.stderr
        sizes = ended.stdout.split()
        assert sizes
        assert all(size.isdigit() for size in sizes)
