"""What all services share: the contract, and how it is spoken."""

import os

# gRPC's own log tells every orderly goodbye as news on stderr; set the variable to hear it.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
