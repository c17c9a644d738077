"""Shared by all services: the contract, gRPC, the client and the command line."""

import os

# gRPC logs every orderly shutdown of a connection on stderr; set the variable to see it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
