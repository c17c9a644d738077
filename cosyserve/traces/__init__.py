"""Traces in files of OTLP JSON lines: written by the services, read and explained."""
