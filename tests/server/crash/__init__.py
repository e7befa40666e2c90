"""Real processes, killed at any moment: a broker under load on a real folder, again and again."""
