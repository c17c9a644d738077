"""Callers with a JSON Web Token of an identity provider (OpenID Connect) in place of a key."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cosyserve.errors import SettingsError, Unauthenticated
from cosyserve.keys.key_record import PRIORITIES, limits_of, require_priority, require_weight
from services.orchestrator.access.caller import Caller
from services.orchestrator.access.signing_keys import SigningKeys

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures with a public key. Not `none`, and no HMAC: who can check one can make one."""
_KEY_TYPES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_LEEWAY_SECONDS = 30.0
_TENANT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@|:-]{0,127}")


@dataclass(frozen=True)
class TokenRules:
    """What a token has to say. Claims that are named with an empty text are not read."""

    issuer: str
    audience: str
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    tenant_claim: str = "tenant"
    limits_claim: str = "limits"
    """An object with fields of `KeyLimits`, and `weight` and `priority`."""
    admin_claim: str = ""
    """True for an admin."""


class TokenVerifier:
    """Raises SettingsError without PyJWT and its library of signatures."""

    def __init__(self, rules: TokenRules, keys: Callable[[], SigningKeys]) -> None:
        try:
            import cryptography.hazmat.primitives.asymmetric.rsa  # noqa: F401
            import jwt  # noqa: F401
        except ImportError as error:
            raise SettingsError("tokens need PyJWT: pip install cosyserve-server[jwt]") from error
        self._rules, self._keys = rules, keys()

    @staticmethod
    def takes(credential: str) -> bool:
        """Whether it has the form of a token."""
        return credential.count(".") == 2

    async def caller_of(self, token: str) -> Caller:
        """Raises Unauthenticated, which says what is wrong and quotes nothing of the token;
        Unavailable while the keys of the provider cannot be had.
        """
        import jwt

        rules = self._rules
        try:
            header = jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in rules.algorithms:
                raise Unauthenticated(f"the token is not signed as one of {', '.join(rules.algorithms)}")
            key = await self._keys.key(str(header.get("kid", "")))
            if key is None or key.key_type != _KEY_TYPES[algorithm[:2]]:
                raise Unauthenticated("the token is signed with a key that its issuer does not have")
            claims = jwt.decode(
                token,
                key.key,
                algorithms=[algorithm],
                audience=rules.audience,
                issuer=rules.issuer,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"], "verify_nbf": True, "verify_exp": True},
            )
        except jwt.PyJWTError as error:
            raise Unauthenticated(f"the token is not valid: {_reason(error)}") from None
        return self._caller(claims)

    def _caller(self, claims: Mapping[str, Any]) -> Caller:
        rules = self._rules
        tenant = claims.get(rules.tenant_claim)
        if not isinstance(tenant, str) or not _TENANT.fullmatch(tenant):
            raise Unauthenticated(f"the token has no claim {rules.tenant_claim} that names a tenant")
        given = claims.get(rules.limits_claim) if rules.limits_claim else None
        try:
            if given is not None and not isinstance(given, Mapping):
                raise ValueError("it is no object")
            values = dict(given or {})
            weight, priority = values.pop("weight", 1.0), values.pop("priority", PRIORITIES[0])
            require_weight(weight)
            require_priority(priority)
            limits = limits_of(values)
        except ValueError as error:
            raise Unauthenticated(f"the claim {rules.limits_claim} of the token is not usable: {error}") from None
        admin = bool(rules.admin_claim) and claims.get(rules.admin_claim) is True
        return Caller(f"jwt:{tenant}", tenant, float(weight), PRIORITIES.index(priority), limits, admin)


def require_algorithms(names: Sequence[str]) -> None:
    """Raise ValueError for one that is not allowed, and for none."""
    wrong = [name for name in names if name not in ALGORITHMS]
    if wrong or not names:
        raise ValueError(f"JWT_ALGORITHMS names {', '.join(wrong) or 'none'}, allowed: {', '.join(ALGORITHMS)}")


def _reason(error: Exception) -> str:
    import jwt

    reasons: tuple[tuple[type[Exception], str], ...] = (
        (jwt.ExpiredSignatureError, "it has expired"),
        (jwt.ImmatureSignatureError, "its time has not come"),
        (jwt.InvalidIssuedAtError, "it was issued in the future"),
        (jwt.InvalidAudienceError, "it is for another audience"),
        (jwt.InvalidIssuerError, "it is of another issuer"),
        (jwt.MissingRequiredClaimError, "it lacks one of the claims exp, iss and aud"),
        (jwt.InvalidSignatureError, "its signature is wrong"),
    )
    return next((text for kind, text in reasons if isinstance(error, kind)), "it cannot be read")
