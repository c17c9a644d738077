"""gRPC for all services: servers, channels to replicas, limits, health, and errors as status."""
