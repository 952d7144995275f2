"""The HTTP edge: thin endpoints, schemas, and errors as problem+json."""
