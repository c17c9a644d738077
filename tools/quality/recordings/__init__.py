"""What is spoken, and where its recordings come from."""
