"""What each route does, by subject. ``HANDLERS`` of each module are by the names of the routes."""
