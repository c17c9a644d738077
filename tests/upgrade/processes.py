"""Service processes of two releases on one machine, each with the code of its own tree.

Both run in this environment: the dependencies of the newer release include those of the older.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from cosyserve.host.supervision.child import Child
from cosyserve.host.supervision.layout import free_ports
from tests.stacks.up_process import DEMO, ROOT
from tests.upgrade.trees import Tree

STARTING_SECONDS = 240.0
STAGES = ("frontend", "llm", "token2wav")


def environment(tree: Tree, **variables: str) -> dict[str, str]:
    """Of a process that has to import from `tree`: without PYTHONSAFEPATH the working directory
    would come first.
    """
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("COSYSERVE_")}
    return {**inherited, "PYTHONPATH": str(tree.root), "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1", **variables}


@contextlib.asynccontextmanager
async def running(tree: Tree, service: str, port: int = 0, **settings: str) -> AsyncIterator[str]:
    """`python -m services.SERVICE` of `tree`; gives its address when it is SERVING. Leaving
    the block kills it. port: 0 takes a free one. settings: of the service.
    """
    port = port or free_ports(1)[0]
    address, lines = f"127.0.0.1:{port}", list[str]()
    given = {"LISTEN": address, "DRAIN_SECONDS": "0", **settings}
    variables = {f"COSYSERVE_{service.upper()}_{name}": value for name, value in given.items()}
    environ = environment(tree, **variables)
    child = await Child.start(f"services.{service}", f"{service} {tree.name}", address, environ, lines.append)
    ended = asyncio.create_task(child.ended())
    serving = asyncio.create_task(child.until_serving())
    try:
        await asyncio.wait((ended, serving), timeout=STARTING_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert child.serving, "\n".join(lines[-20:])
        yield address
    finally:
        serving.cancel()
        child.send(signal.SIGKILL)
        await ended


def stage(tree: Tree, service: str, voices: Path) -> "contextlib.AbstractAsyncContextManager[str]":
    """A stage with the bundled voice of its tree. voices: the folder of made voices, which
    frontends share.
    """
    settings = {"MODEL": str(tree.root / DEMO.relative_to(ROOT))}
    settings |= {"VOICES_URL": str(voices)} if service == "frontend" else {"DEVICE": "cpu"}
    return running(tree, service, **settings)


def orchestrator(
    tree: Tree, stages: Mapping[str, str], port: int = 0, **settings: str
) -> "contextlib.AbstractAsyncContextManager[str]":
    """In front of these stages: addresses by name, of several replicas with commas between them."""
    reached = {name.upper(): address for name, address in stages.items()}
    return running(tree, "orchestrator", port, **{"ADAPTIVE_LIMIT": "off", "WARM_VOICES": "0", **reached, **settings})
