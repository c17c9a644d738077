"""Every stage of this release beside those of the last one, in both directions: while an upgrade or
its reversal is under way they serve together.

What is promised: where `header.engine` is the same, a text that both releases read alike has the
same samples for the same seed. The weights, the engines and the joining of sentences have not
changed since 0.2.0, so that all of these are equal to the sample.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from cosyserve.client import AsyncClient
from cosyserve.client.types import Header
from tests.stacks.calls import heard
from tests.upgrade.conftest import Mix, Releases
from tests.upgrade.processes import environment
from tests.upgrade.trees import Tree

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(900)]  # six engines start
SCRIPT = Path(__file__).with_name("every_call.py")
NEW: Mix = ("new", "new", "new", "new")
ONE_IS_OLD = [tuple("old" if place == old else "new" for place in range(4)) for old in range(4)]
ONE_IS_NEW = [tuple("new" if place == new else "old" for place in range(4)) for new in range(4)]
TEXT = "It works as before, doesn't it? Yes, all 3 of them do."


async def spoken(releases: Releases, mix: Mix) -> tuple[bytes, Header]:
    async with releases.mixed(mix) as address, AsyncClient(address) as client:
        audio, header, _ = await heard(client.synthesize(TEXT, seed=3))
    return audio, header


async def called(tree: Tree, address: str, name: str) -> dict[str, Any]:
    """Every call, by the client of `tree`."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(SCRIPT), address, name,
        env=environment(tree), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    found: dict[str, Any] = json.loads(output)
    return found


@pytest.fixture(scope="module")
def expected() -> dict[str, Any]:
    """What this release answers by itself; the first test that needs it puts it in."""
    return {}


async def alone(releases: Releases, expected: dict[str, Any]) -> dict[str, Any]:
    if not expected:
        async with releases.mixed(NEW) as address:
            expected |= await called(releases.trees["new"], address, releases.fresh_name())
    return expected


def agrees(found: dict[str, Any], wanted: dict[str, Any], mix: Mix) -> bool:
    """A recording that is converted is read more finely by a new frontend for a new orchestrator
    alone; the conversion of any other mix has another engine by name.
    """
    conversion = "ConvertVoice"
    if mix[:2] != NEW[:2]:
        assert found[conversion][0] != wanted[conversion][0]
        found, wanted = {**found, conversion: None}, {**wanted, conversion: None}
    return found == wanted


async def test_the_old_stages_speak_like_the_new_ones(releases: Releases) -> None:
    """One sentence through each old stage beside new ones, and each new one beside old ones."""
    mixes = [NEW, *ONE_IS_OLD, *ONE_IS_NEW]
    new, *mixed = await asyncio.gather(*(spoken(releases, mix) for mix in mixes))
    assert len(new[0]) > 24_000
    assert [mix for mix, found in zip(mixes[1:], mixed, strict=True) if found != new] == []


@pytest.mark.parametrize("mix", [*ONE_IS_OLD, *ONE_IS_NEW], ids="-".join)
async def test_every_call_of_the_client_of_this_release(releases: Releases, expected: dict[str, Any], mix: Mix) -> None:
    wanted = await alone(releases, expected)
    async with releases.mixed(mix) as address:
        found = await called(releases.trees["new"], address, releases.fresh_name())
    assert agrees(found, wanted, mix), (found, wanted)


@pytest.mark.parametrize("mix", [NEW, *ONE_IS_OLD, *ONE_IS_NEW], ids="-".join)
async def test_every_call_of_the_client_of_the_last_release(
    releases: Releases, expected: dict[str, Any], mix: Mix
) -> None:
    wanted = await alone(releases, expected)
    async with releases.mixed(mix) as address:
        found = await called(releases.trees["old"], address, releases.fresh_name())
    assert agrees(found, wanted, mix), (found, wanted)
