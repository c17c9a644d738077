"""Text in and audio out over one WebSocket, in this server's own messages."""
