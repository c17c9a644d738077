"""Certificates are exchanged while requests run: none fails, and the new ones are used."""

import asyncio
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from cosyserve.client import AsyncClient
from cosyserve.errors import CosyserveError
from cosyserve.rpc.replicas import ReplicaSet
from cosyserve.tasks import Changes
from tests.stacks.certificates import HERE, Authority, Folder, Pair, replace
from tests.stacks.in_process import serving
from tests.stacks.scripted_stages import Llm, Script, expected_audio
from tests.stacks.secured import CALLER, ORCHESTRATOR, STAGE, Secured, health_status, secured, served, tls_of

NAMES = {"stage": STAGE, "orchestrator": ORCHESTRATOR, "caller": CALLER}
TEXT = "one three five"


async def served_certificate(port: int, folder: Folder) -> int:
    """Serial number of the certificate with which a new connection is answered."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(folder.certificate, folder.key)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return x509.load_der_x509_certificate(der).serial_number


def serial(pair: Pair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate).serial_number


def overwrite(path: Path, contents: bytes) -> bytes:
    """In place; returns what was there."""
    before = path.read_bytes()
    path.write_bytes(contents)
    return before


def remove(path: Path) -> None:
    path.unlink()


class Load:
    """Callers that speak without a pause, each over a connection of its own."""

    def __init__(self, stack: Secured, callers: int) -> None:
        self.spoken, self.failures = 0, list[str]()
        self._stack, self._callers = stack, callers
        self._over = False

    async def _speak(self) -> None:
        async with AsyncClient(self._stack.address, tls=self._stack.caller) as client:
            while not self._over:
                try:
                    # Not resumed: a lost connection would be hidden.
                    audio = await client.synthesize(TEXT, sentence_pause_milliseconds=0, resume_seconds=0.0).read()
                except CosyserveError as error:
                    self.failures.append(f"{type(error).__name__}: {error}")
                    return
                if audio != expected_audio(TEXT):
                    self.failures.append("other samples")
                self.spoken += 1

    async def __aenter__(self) -> "Load":
        self._tasks = [asyncio.create_task(self._speak()) for _ in range(self._callers)]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)

    async def rounds(self, more: int = 2) -> None:
        """Until each caller has spoken so many times more, on average."""
        wanted = self.spoken + more * self._callers
        while self.spoken < wanted and not self.failures:
            await asyncio.sleep(0.01)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("exchanges", [2, 20])
async def test_no_request_fails_while_everything_is_exchanged(exchanges: int, tmp_path: Path) -> None:
    """Each time a new CA is added, all sign with it, and the old one is removed, as one does."""
    async with secured(tmp_path, max_streams=64) as stack, Load(stack, callers=4) as load:
        before = stack.authority
        for _ in range(exchanges):
            await load.rounds()
            authority = Authority()
            both = before.pem + authority.pem
            for folder in stack.folders.values():
                replace(folder.ca, both)
            await load.rounds()
            pairs = {name: authority.issue((*HERE, uri)) for name, uri in NAMES.items()}
            for name, folder in stack.folders.items():
                replace(folder.key, pairs[name].key)  # does not fit the certificate that is still there
                await load.rounds(1)
                replace(folder.certificate, pairs[name].certificate)
            await load.rounds()
            for folder in stack.folders.values():
                replace(folder.ca, authority.pem)
            await load.rounds()
            assert await served_certificate(stack.orchestrator.port, stack.folders["caller"]) == serial(
                pairs["orchestrator"]
            )
            for stage in stack.stages.values():
                own = stack.folders["orchestrator"]
                assert await served_certificate(stage.port, own) == serial(pairs["stage"])
            outdated = tls_of(Folder(tmp_path / "outdated").put(before.issue((*HERE, CALLER)), authority.pem))
            assert await health_status(stack.address, outdated) == "UNAVAILABLE"
            before = authority
    assert load.failures == []
    assert load.spoken >= 4 * 10 * exchanges


@pytest.mark.parametrize("broken", [b"", b"-----BEGIN CERTIFICATE-----\nMIIB", b"\x00\xff" * 900])
async def test_what_cannot_be_used_is_not_used(broken: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with secured(tmp_path, max_streams=64) as stack, Load(stack, callers=2) as load:
        caller = stack.folders["caller"]
        before = await served_certificate(stack.orchestrator.port, caller)
        await load.rounds(2)
        for name in ("certificate", "key", "ca"):
            path: Path = getattr(stack.folders["orchestrator"], name)
            right = overwrite(path, broken)
            assert await served_certificate(stack.orchestrator.port, caller) == before
            await load.rounds(2)
            assert str(path) in caplog.text
            remove(path)
            assert await health_status(stack.address, stack.caller) == "SERVING"
            await load.rounds(2)
            assert f"{path} cannot be read: No such file or directory" in caplog.text
            replace(path, right)
        fresh = stack.authority.issue((*HERE, ORCHESTRATOR))
        stack.folders["orchestrator"].put(fresh, stack.authority.pem)
        assert await served_certificate(stack.orchestrator.port, caller) == serial(fresh)
    assert load.failures == []


async def test_a_replica_that_was_lost_is_found_again_with_new_certificates(tmp_path: Path) -> None:
    """No call comes that would look at the files: the stage serves no more."""
    authority, other = Authority(), Authority()
    server = Folder(tmp_path / "server").put(authority.issue(), authority.pem)
    client = Folder(tmp_path / "client").put(authority.issue(), authority.pem)
    changes = Changes()

    async def until(serving: bool) -> None:
        await changes.wait_for(lambda: replicas.serving == serving)

    async with serving("llm", Llm(Script()), **served(server)) as first:
        target = f"127.0.0.1:{first.port}"
        replicas = ReplicaSet("llm", "cosyserve.v1.LlmService", (target,), 1 << 20, changes.notify, tls_of(client))
        try:
            await until(serving=True)
            # A new channel takes the place of the one that serves, without a gap.
            client.put(authority.issue(), authority.pem)
            assert (await health_status(target, tls_of(client))) == "SERVING"
            gap = asyncio.create_task(changes.wait())
            for _ in range(10):
                replicas.replicas[0].channel.get_state()  # as a call does
                await asyncio.sleep(0.1)
            assert not gap.done()
            gap.cancel()
        except BaseException:
            await replicas.close()
            raise
    try:
        await until(serving=False)
        server.put(other.issue(), other.pem)
        async with serving("llm", Llm(Script()), listen=target, **served(server)):
            await asyncio.sleep(2.0)
            assert not replicas.serving
            client.put(other.issue(), other.pem)
            await until(serving=True)
    finally:
        await replicas.close()
