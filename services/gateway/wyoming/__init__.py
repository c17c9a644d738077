"""Wyoming, the protocol of Home Assistant's voice services: events in JSON lines over TCP."""
