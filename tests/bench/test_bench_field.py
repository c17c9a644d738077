"""The benchmark of the field over both doors, with calling processes, against stages that are
scripted.
"""

import json
from pathlib import Path

import pytest

from bench.field import measured
from bench.field.loads import GRPC, HTTP, Group, Load
from bench.field.measured import Conditions
from bench.field.server import Server
from bench.parts.provenance import Subject
from tests.stacks.gateway_server import scripted_gateway

CONDITIONS = Conditions("scripted", "running", "", 6, 0.0, 0, 2, "")
SUBJECT = Subject("a machine", {}, "abc", "")
LOADS = tuple(Load(f"over {door}", door, 10.0, 6, 0.0, warm=0.0) for door in (HTTP, GRPC))
GROUP = Group("both", "six requests", LOADS)


async def test_both_doors_are_measured_and_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    out = tmp_path / "both.json"
    async with scripted_gateway(max_streams=1_000) as (gateway, stack):
        addresses = {HTTP: gateway.address, GRPC: f"127.0.0.1:{stack.orchestrator.port}"}
        rows = await measured.measure(GROUP, Server("scripted", addresses=addresses), CONDITIONS, SUBJECT, out)
    assert [one.load for one in rows] == ["over http", "over grpc"]
    for one in rows:
        assert (one.answered, one.refused, one.failed) == (one.requests, 0, 0)
        assert one.requests >= 6
        assert one.mean_audio > 0
        assert one.first["p50"][0] > 0
    assert measured.rows_of(json.loads(out.read_text())) == rows
    # Nothing is left to measure: no server is asked.
    assert await measured.measure(GROUP, Server("scripted"), CONDITIONS, SUBJECT, out) == rows
    other = Subject("another machine", {}, "abc", "")
    with pytest.raises(ValueError, match="another part, machine, source or model"):
        await measured.measure(GROUP, Server("scripted"), CONDITIONS, other, out)
