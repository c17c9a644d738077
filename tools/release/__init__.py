"""What a release is made with: its version everywhere, and its bill of materials."""
