"""Callers that mean harm, against a running stack: `make attack`."""
