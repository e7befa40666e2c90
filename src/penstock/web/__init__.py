"""Files for browsers that several packages show. ``vendor/`` has libraries of others, with hashes and licences."""
