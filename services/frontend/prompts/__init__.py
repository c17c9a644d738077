"""What a request brings besides its text: recordings that become voices, and instructions."""
