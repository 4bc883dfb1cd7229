"""Where users of npugraph_ex look for its logger."""
