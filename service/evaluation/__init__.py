"""`braid eval`: how good the rankings are, measured over HTTP on a collection that comes with judgements."""
