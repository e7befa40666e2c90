"""Files for browsers that more than one room shows: ``vendor/`` has other people's libraries, with hashes and licences."""
