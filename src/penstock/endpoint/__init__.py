"""What the processes beside the broker share: how they are started, what they say, and who may do what through them."""
