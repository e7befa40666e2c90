"""What all companion processes share on the broker's side: how one is run, and the private socket that it asks on."""
