"""What every API shares: a request to speak, its answer as audio, and its failures."""
