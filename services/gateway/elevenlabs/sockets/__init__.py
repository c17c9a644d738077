"""Text in and audio out over WebSockets, in ElevenLabs' messages."""
