"""The simulator: years of a broker's life, from a seed, on a disk that forgets, tears, flips and fails."""
