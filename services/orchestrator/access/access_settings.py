"""Settings of the orchestrator about callers: keys, tokens, limits and shares."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from cosyserve.errors import SettingsError
from cosyserve.keys import key_file
from cosyserve.keys.exposure import require_protected
from cosyserve.rpc.server_settings import ServerSettings
from cosyserve.settings import require_range
from services.orchestrator.access.callers import Callers, LimitParts
from services.orchestrator.access.gate import AccessGate
from services.orchestrator.access.key_ring import KeyRing, WatchedKeys
from services.orchestrator.access.signing_keys import SigningKeys
from services.orchestrator.access.token_verifier import TokenRules, TokenVerifier, require_algorithms

WAYS = (
    "name a keys file (KEYS_FILE; cosyserve keys add makes one), or say that this is wanted (INSECURE=true; --insecure)"
)


@dataclass(frozen=True, kw_only=True)
class AccessSettings(ServerSettings):
    """Without keys and tokens every caller is served, which is allowed on the loopback alone."""

    keys_file: Path | None = None
    """File with the keys of callers (`cosyserve keys`), read again when it changes."""
    keys: str = ""
    """The content of such a file, in place of one."""
    insecure: bool = False
    """Whether callers without a key are served on an address that other machines reach."""
    open_reflection: bool = False
    """Whether reflection needs no key."""
    jwt_issuer: str = ""
    """The `iss` of tokens that are taken in place of keys; empty: none are."""
    jwt_audience: str = ""
    """Their `aud`."""
    jwt_keys: str = ""
    """Where the public keys of the issuer are: the path or the https address of a JSON Web Key
    Set.
    """
    jwt_algorithms: tuple[str, ...] = ("RS256", "ES256")
    """Signatures that are accepted."""
    jwt_tenant_claim: str = "tenant"
    """Claim that names the tenant."""
    jwt_limits_claim: str = "limits"
    """Claim with limits, weight and priority of the tenant, as in a keys file; empty: none."""
    jwt_admin_claim: str = ""
    """Claim that is true for an admin; empty: no token is one."""
    limit_parts: int = 1
    """Orchestrators among which the limits of a key are divided, 1 to 1024."""
    limit_parts_name: str = ""
    """Host name whose addresses are those of all orchestrators; their number replaces LIMIT_PARTS.
    """
    share_wait_seconds: float = 1.0
    """Longest time, 0 to 30 s, that a request waits for a place where several keys share them."""
    share_kept_seconds: float = 10.0
    """How long, 0 to 60 s, a place that a key has just used is kept for it from other keys."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keys and self.keys_file is not None:
            raise ValueError("KEYS and KEYS_FILE are both set; keys come from one of them")
        for name, least, most in (
            ("limit_parts", 1, 1_024),
            ("share_wait_seconds", 0, 30),
            ("share_kept_seconds", 0, 60),
        ):
            require_range(self, [name], "{NAME} is {value:g}, allowed are {least} to {most}", least=least, most=most)
        needed = {"JWT_ISSUER": self.jwt_issuer, "JWT_AUDIENCE": self.jwt_audience, "JWT_KEYS": self.jwt_keys}
        if any(needed.values()) and (missing := [name for name, value in needed.items() if not value]):
            raise ValueError(f"{missing[0]} is not set; tokens need {', '.join(needed)}")
        require_algorithms(self.jwt_algorithms)
        require_protected(self.listen, keys=self.has_keys, insecure=self.insecure, ways=WAYS)

    @property
    def has_keys(self) -> bool:
        """Whether callers need a key or a token."""
        return self.keys_file is not None or bool(self.keys) or bool(self.jwt_issuer)

    def gate(self) -> AccessGate | None:
        """The interceptor that knows the callers; None if all of them are served. Reads the keys;
        raises SettingsError.
        """
        if not self.has_keys:
            return None
        keys: KeyRing | WatchedKeys | None = None
        if self.keys_file is not None:
            keys = WatchedKeys(self.keys_file)
        elif self.keys:
            keys = KeyRing(key_file.parse(self.keys, "KEYS"))
        verifier = TokenVerifier(self._rules(), partial(SigningKeys, self.jwt_keys)) if self.jwt_issuer else None
        if keys is None and verifier is None:
            raise SettingsError("there are neither keys nor an issuer of tokens")
        parts = LimitParts(self.limit_parts, self.limit_parts_name)
        return AccessGate(Callers(keys, verifier, parts), open_reflection=self.open_reflection)

    def _rules(self) -> TokenRules:
        return TokenRules(
            self.jwt_issuer,
            self.jwt_audience,
            self.jwt_algorithms,
            self.jwt_tenant_claim,
            self.jwt_limits_claim,
            self.jwt_admin_claim,
        )
