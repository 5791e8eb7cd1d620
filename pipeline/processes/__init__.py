"""Scripts of one experiment run in a process of their own, for `compare --jobs` as for a sweep."""
