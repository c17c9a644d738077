"""Load on the services: when requests come, what a player hears, and engines without services."""
