"""What a first sound costs beside the work of the engines: the calls, and the code around them."""
