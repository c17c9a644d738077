"""Each example of docs/client.md prints what the page says, against the bundled model."""

import asyncio
import doctest
import re
import subprocess
import sys
from pathlib import Path

from cosyserve.host.supervision.supervisor import local_deployment

ROOT = Path(__file__).parents[3]
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
    text = PAGE.read_text(encoding="utf-8")
    blocks = FENCE.findall(text)
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
