"""EngineIdentity of identity.proto, to and from `Identity`."""

from cosyserve.engines.identity import Identity
from cosyserve.v1 import identity_pb2


def identity_from_proto(message: identity_pb2.EngineIdentity) -> Identity:
    """The message as a value that can be compared."""
    return Identity(message.model_hash, message.backend, message.precision, message.device)


def identity_to_proto(identity: Identity) -> identity_pb2.EngineIdentity:
    return identity_pb2.EngineIdentity(
        model_hash=identity.model_hash, backend=identity.backend, precision=identity.precision, device=identity.device
    )
