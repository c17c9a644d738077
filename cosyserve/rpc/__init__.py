"""How gRPC is spoken here: servers, channels to replicas, limits, health and errors as status."""
