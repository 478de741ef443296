"""One judgment, from request to verdict."""
