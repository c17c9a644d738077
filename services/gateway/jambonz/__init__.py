"""jambonz's two APIs for speech vendors of one's own: a text by HTTP, or tokens by WebSocket."""
