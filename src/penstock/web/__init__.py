"""Files for browsers that several rooms show. ``vendor/`` has libraries of others, with hashes and licences."""
