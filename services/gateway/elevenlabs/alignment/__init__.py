"""When each character of a text is spoken, derived from the times of its words."""
