"""Every endpoint of the OpenAPI document under requests that schemathesis makes of it, valid and
not: no 5xx from bad input, only answers that the document has, in the form that it says.

The services are real, their engines only seem to speak. schemathesis has an environment of its own
(`make build/schemathesis/.ready`); without it the test is skipped.
"""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
import pytest_asyncio

from cosyserve.host.supervision.supervisor import local_deployment
from tests.fuzz.strategies import INPUTS

PROGRAM = Path("build/schemathesis/bin/schemathesis").absolute()
MANY = "FUZZ_INPUTS" in os.environ
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "unsupported_method",
    "allow_header_conformance",
    "missing_required_header",
)
"""Not whether what fits the schema is accepted: a text without a letter does."""
pytestmark = [
    pytest.mark.skipif(not PROGRAM.exists(), reason="make build/schemathesis/.ready installs schemathesis"),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def address(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    voices = str(tmp_path_factory.mktemp("voices"))
    environ = {
        **os.environ,
        "COSYSERVE_FRONTEND_VOICES_URL": voices,
        "COSYSERVE_ORCHESTRATOR_ADAPTIVE_LIMIT": "off",
    }
    async with local_deployment(Path("models/demo"), backend="fake", http="127.0.0.1:0", environ=environ) as deployment:
        assert deployment.http is not None
        yield f"http://{deployment.http}"


async def test_the_document_is_complete(address: str) -> None:
    """Every operation says what comes back, and what a refusal looks like."""
    async with httpx2.AsyncClient(base_url=address, timeout=20) as http:
        document = (await http.get("/openapi.json")).json()
    operations = {
        (path, method): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert ("/v1/audio/speech", "post") in operations
    for name, operation in operations.items():
        responses = operation["responses"]
        assert {"400", "404", "408", "413", "429", "500", "503"} <= set(responses), name
        assert "HTTPValidationError" not in str(responses), name
        good = [status for status in responses if status.startswith("2")]
        assert good, name
        for status in good:
            contents = responses[status].get("content", {})
            assert contents, (name, status)
            for kind, content in contents.items():
                assert content.get("schema"), (name, status, kind)


async def test_no_request_breaks_it(address: str, tmp_path: Path) -> None:
    examples = max(5, INPUTS // 1_000) if MANY else 5
    command = [
        str(PROGRAM), "run", f"{address}/openapi.json",
        "--checks", ",".join(CHECKS),
        "--phases", "examples,coverage,fuzzing,stateful" if MANY else "fuzzing",
        "--max-examples", str(examples),
        "--request-timeout", "60",
        "--suppress-health-check", "all",
        *([] if MANY else ["--generation-deterministic"]),
    ]  # fmt: skip
    # In a folder of its own: it keeps what it found where it runs.
    process = await asyncio.create_subprocess_exec(
        *command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()[-20_000:]
    async with httpx2.AsyncClient(base_url=address, timeout=20) as http:
        assert (await http.get("/readyz")).status_code == 200
