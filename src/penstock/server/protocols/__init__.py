"""What each protocol's session does with its frames."""
