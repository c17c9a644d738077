"""Facts of the machine and its libraries, and the settings that suit them."""
