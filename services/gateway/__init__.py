"""The HTTP and WebSocket APIs, as a client of the public gRPC service; computes no speech itself."""
