"""The API of ElevenLabs' speech endpoints, over HTTP and WebSockets, with this server's voices."""
