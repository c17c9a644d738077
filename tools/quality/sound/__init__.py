"""Measures of the sound itself: naturalness, duration, endings, and the seams of a stream."""
