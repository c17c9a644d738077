"""Tokens of an identity provider: who is let in, and every way to be refused."""

import base64
import hashlib
import hmac
import json
import time
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from cosyserve.errors import SettingsError, Unauthenticated, Unavailable
from cosyserve.keys.key_record import KeyLimits
from services.orchestrator.access import signing_keys
from services.orchestrator.access.signing_keys import SigningKeys
from services.orchestrator.access.token_verifier import ALGORITHMS, TokenRules, TokenVerifier, require_algorithms

RSA, OTHER = (rsa.generate_private_key(public_exponent=65537, key_size=2048) for _ in range(2))
EC = ec.generate_private_key(ec.SECP256R1())
RULES = TokenRules("https://id.example", "speech", admin_claim="speech_admin")


def public(key: Any, name: str) -> dict[str, Any]:
    kind = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**json.loads(kind.to_jwk(key.public_key())), "kid": name, "use": "sig"}


SET = {"keys": [public(RSA, "r"), public(EC, "e"), {"kty": "oct", "kid": "o", "k": "c2VjcmV0"}]}


def token(key: Any = RSA, algorithm: str = "RS256", kid: str = "r", **claims: Any) -> str:
    now = int(time.time())
    values = {"iss": RULES.issuer, "aud": RULES.audience, "exp": now + 60, "tenant": "clinic", **claims}
    given = {name: value for name, value in values.items() if value is not None}
    return jwt.encode(given, key, algorithm, headers={"kid": kid})


@pytest.fixture
def verifier(tmp_path: Path) -> TokenVerifier:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(SET))
    return TokenVerifier(RULES, lambda: SigningKeys(str(path)))


async def test_a_token_says_who_calls(verifier: TokenVerifier) -> None:
    caller = await verifier.caller_of(token())
    assert (caller.id, caller.tenant, caller.scope, caller.weight) == ("jwt:clinic", "clinic", "clinic", 1.0)
    limits = {"concurrent": 2, "characters_per_day": 500, "weight": 3, "priority": "batch"}
    caller = await verifier.caller_of(token(EC, "ES256", "e", limits=limits, aud=["else", "speech"]))
    assert (caller.limits, caller.weight, caller.priority) == (KeyLimits(2, characters_per_day=500), 3.0, 1)
    admin = await verifier.caller_of(token(speech_admin=True))
    assert (admin.admin, admin.scope) == (True, None)
    assert not (await verifier.caller_of(token(speech_admin="true"))).admin


def _unsigned() -> str:
    parts = ({"alg": "none", "kid": "r"}, {"iss": RULES.issuer, "aud": "speech", "exp": 9e9, "tenant": "clinic"})
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in parts) + "."


def _hmac_with_the_public_key() -> str:
    pem = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _hmac(pem)


def _hmac(secret: bytes) -> str:
    _, body, _ = token().split(".")
    header = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": "r"}).encode()).decode().rstrip("=")
    signature = hmac.new(secret, f"{header}.{body}".encode(), hashlib.sha256).digest()
    return f"{header}.{body}.{base64.urlsafe_b64encode(signature).decode().rstrip('=')}"


def _changed() -> str:
    head, _, signature = token().split(".")
    return f"{head}.{token(tenant='bank').split('.')[1]}.{signature}"


PAST, FUTURE = int(time.time()) - 3600, int(time.time()) + 3600


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: token(exp=PAST), "it has expired"),
        (lambda: token(exp=None), "lacks one of the claims"),
        (lambda: token(nbf=FUTURE), "its time has not come"),
        (lambda: token(iss="https://evil.example"), "another issuer"),
        (lambda: token(aud="mail"), "another audience"),
        (lambda: token(aud=None), "lacks one of the claims|another audience"),
        (lambda: token(OTHER), "signature is wrong"),
        (_changed, "signature is wrong"),
        (_unsigned, "not signed as one of RS256, ES256"),
        (_hmac_with_the_public_key, "not signed as one of"),
        (lambda: _hmac(b"secret"), "not signed as one of"),
        (lambda: token(algorithm="RS512"), "not signed as one of"),
        (lambda: token(kid="unknown"), "does not have"),
        (lambda: token(kid="e"), "does not have"),
        (lambda: token(kid="o"), "does not have"),
        (lambda: token(tenant=None), "no claim tenant"),
        (lambda: token(tenant="../x"), "no claim tenant"),
        (lambda: token(tenant=7), "no claim tenant"),
        (lambda: token(limits={"concurrent": -1}), "claim limits .* not usable"),
        (lambda: token(limits=[]), "claim limits .* not usable"),
        (lambda: token(limits={"weight": -1}), "weight"),
        (lambda: "a.b.c", "it cannot be read"),
        (lambda: "..", "it cannot be read"),
    ],
)
async def test_a_token_that_is_not_valid(verifier: TokenVerifier, made: Any, said: str) -> None:
    given = made()
    with pytest.raises(Unauthenticated, match=said) as caught:
        await verifier.caller_of(given)
    assert given not in caught.value.message or given == ".."


async def test_a_key_of_another_kind_is_not_tried(verifier: TokenVerifier) -> None:
    forged = token(EC, "ES256", "r")
    with pytest.raises(Unauthenticated, match="does not have"):
        await verifier.caller_of(forged)


async def test_keys_are_fetched_again_when_one_is_unknown_but_not_for_every_token() -> None:
    now, fetched = [100.0], []
    served: list[Any] = [{"keys": [public(RSA, "r")]}]

    def fetch(source: str) -> bytes:
        fetched.append(source)
        if isinstance(served[0], Exception):
            raise served[0]
        return json.dumps(served[0]).encode()

    keys = SigningKeys("https://id.example/keys", fetch, lambda: now[0])
    assert await keys.key("r") is not None
    for _ in range(20):
        assert await keys.key("new") is None
    assert len(fetched) == 1
    served[0] = SET
    now[0] += signing_keys.LEAST_SECONDS
    assert await keys.key("e") is not None
    now[0] += signing_keys.FRESH_SECONDS
    served[0] = SettingsError("gone")
    assert await keys.key("r") is not None  # used on
    assert len(fetched) == 3


async def test_without_any_answer_of_the_provider_no_token_is_checked() -> None:
    def fetch(source: str) -> bytes:
        raise SettingsError("unreachable")

    with pytest.raises(Unavailable, match="cannot be fetched"):
        await SigningKeys("https://id.example/keys", fetch).key("r")


@pytest.mark.parametrize("source", ["http://id.example/keys", "ftp://id.example/keys", "file:///etc/passwd"])
def test_keys_come_from_where_no_one_on_the_way_can_change_them(source: str) -> None:
    with pytest.raises(SettingsError, match="https is expected"):
        SigningKeys(source)
    SigningKeys("http://127.0.0.1:1/keys")


def test_a_set_without_public_keys_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "jwks.json"
    for content in ("{", "[]", '{"keys": []}', json.dumps({"keys": [SET["keys"][2]]})):
        path.write_text(content)
        with pytest.raises(SettingsError):
            SigningKeys(str(path))


def test_algorithms_that_let_anyone_sign_are_not_allowed() -> None:
    require_algorithms(ALGORITHMS)
    for names in (("none",), ("HS256",), ("RS256", "HS512"), ()):
        with pytest.raises(ValueError, match="JWT_ALGORITHMS"):
            require_algorithms(names)
