"""Files for browsers that several packages show: ``charts/``, and libraries of others, with hashes and licences."""
