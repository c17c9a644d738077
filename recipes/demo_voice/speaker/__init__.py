"""The speaker encoder of the bundled voice: what a voice sounds like, in 192 numbers."""
