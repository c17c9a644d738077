"""Virtual clocks, and engines that take the time that a device was seen to take."""
