"""`cosyserve up` with TLS on its public ports, and the commands that call it."""

import json
import re
import signal
import ssl
import time
import urllib.request
from pathlib import Path

import psutil

from tests.stacks.certificates import HERE, Authority, Folder
from tests.stacks.up_process import Up, run_cosyserve

CALLER = "spiffe://cosyserve.test/caller"


def test_public_ports_have_tls_and_all_else_goes_on(tmp_path: Path) -> None:
    authority = Authority()
    server = Folder(tmp_path / "server").put(authority.issue(), authority.pem)
    caller = Folder(tmp_path / "caller").put(authority.issue((*HERE, CALLER)), authority.pem)
    stranger = Folder(tmp_path / "stranger").put(authority.issue((*HERE, "another")), authority.pem)

    def options(folder: Folder) -> list[str]:
        return [
            *("--tls-ca", str(folder.ca)),
            *("--tls-certificate", str(folder.certificate), "--tls-key", str(folder.key)),
        ]

    up = Up(
        *("--http", "127.0.0.1:0", "--tls-certificate", str(server.certificate), "--tls-key", str(server.key)),
        *("--tls-client-ca", str(server.ca), "--tls-client-name", CALLER),
    )
    try:
        ready = up.line_with("ready: ")
        match = re.search(r"ready: (\S+) and https://(\S+)", ready)
        assert match is not None, ready
        grpc, http = match.groups()
        said = run_cosyserve("say", "It works.", "-o", str(tmp_path / "a.wav"), "--server", grpc, *options(caller))
        assert said.returncode == 0, said.stderr
        listed = run_cosyserve(
            *("voices", "list", "--json", "--server", grpc),
            COSYSERVE_TLS_CA=str(caller.ca),
            COSYSERVE_TLS_CERTIFICATE=str(caller.certificate),
            COSYSERVE_TLS_KEY=str(caller.key),
        )
        assert json.loads(listed.stdout)["voices"], listed.stderr
        told = run_cosyserve("info", "--server", grpc, *options(caller))
        assert told.returncode == 0, told.stderr
        refused = run_cosyserve("voices", "--server", grpc, *options(stranger))
        assert refused.returncode != 0
        assert "the client certificate is for" in refused.stderr
        assert run_cosyserve("voices", "--server", grpc).returncode != 0
        context = ssl.create_default_context(cafile=str(caller.ca))
        context.load_cert_chain(caller.certificate, caller.key)

        def spoken() -> bytes:
            body = json.dumps({"input": "It works.", "seed": 1, "response_format": "pcm"}).encode()
            request = urllib.request.Request(
                f"https://{http}/v1/audio/speech", body, headers={"content-type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                content: bytes = answer.read()
                return content

        before = spoken()
        assert before
        # The socket of a process that was killed is used again.
        orchestrator = next(
            child for child in psutil.Process(up.process.pid).children() if "services.orchestrator" in child.cmdline()
        )
        orchestrator.send_signal(signal.SIGKILL)
        up.line_with("orchestrator.0 was killed by SIGKILL")
        until = time.monotonic() + 60
        while sum("orchestrator.0 serving" in line for line in up.lines) < 2:
            assert time.monotonic() < until, up.lines
            time.sleep(0.1)
        assert spoken() == before
    finally:
        assert up.end() == 0


def test_options_that_do_not_fit_together() -> None:
    for options, complaint in (
        (["--tls-key", "k"], "--tls-certificate and --tls-key are needed together"),
        (["--tls-client-ca", "a"], "--tls-client-ca needs --tls-certificate and --tls-key"),
        (["--tls-certificate", "c", "--tls-key", "k", "--tls-client-name", "n"], "--tls-client-name needs"),
    ):
        done = run_cosyserve("up", *options)
        assert done.returncode == 2, done.stderr
        assert complaint in done.stderr
    missing = run_cosyserve("voices", "--tls-ca", "/not/there.pem")
    assert missing.returncode != 0
    assert "/not/there.pem cannot be read: No such file or directory" in missing.stderr
