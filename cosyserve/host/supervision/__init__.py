"""Starts all services on one machine, watches them and restarts what fails."""
