"""What is wrong with a data folder, and making a damaged one usable again."""
