"""The contract of CosyVoice's own gRPC server, translated to our own."""
