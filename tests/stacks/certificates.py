"""Certificates of tests: those of `tools.certificates`, and some that are of no use."""

from cryptography.hazmat.primitives import serialization

from tools.certificates import HERE, Authority, Folder, Pair, replace

__all__ = ["HERE", "Authority", "Folder", "Pair", "encrypted", "replace"]


def encrypted(pair: Pair) -> bytes:
    """Its key with a passphrase."""
    key = serialization.load_pem_private_key(pair.key, None)
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )
