"""The API of OpenAI's speech endpoints, with this server's voices and extensions."""
