"""The files of the finished model directory."""
