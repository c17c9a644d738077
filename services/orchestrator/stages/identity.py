"""An engine's identity on the wire."""

from cosyserve.engines.identity import Identity
from cosyserve.v1 import identity_pb2


def from_message(message: identity_pb2.EngineIdentity) -> Identity:
    """As a value that can be compared."""
    return Identity(message.model_hash, message.backend, message.precision, message.device)


def to_message(identity: Identity) -> identity_pb2.EngineIdentity:
    """As EngineIdentity of identity.proto."""
    return identity_pb2.EngineIdentity(
        model_hash=identity.model_hash, backend=identity.backend, precision=identity.precision, device=identity.device
    )
