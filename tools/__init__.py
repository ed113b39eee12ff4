"""Scripts that developers run by hand, from the root of a checkout."""
