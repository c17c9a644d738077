"""What the layers of a server note about each call, and count."""
