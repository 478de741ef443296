"""What clients over HTTP share: requests and their retries, error bodies, worker addresses, the wire types of rewards."""
