"""The samples of a reply: pauses, trimmed silence, and how much the listener still has to play."""
