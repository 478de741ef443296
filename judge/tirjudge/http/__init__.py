"""Code shared by HTTP clients and servers: retries, error bodies, worker health checks, and the wire types of
rewards."""
