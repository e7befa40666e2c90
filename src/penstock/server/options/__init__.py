"""The broker's options: from flags, environment variables and a file to typed, checked values."""
