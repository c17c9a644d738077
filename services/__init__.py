"""The services, one package each; none imports another."""
