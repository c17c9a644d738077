"""The HTTP and WebSocket APIs, a client of the public gRPC service; computes no speech itself."""
