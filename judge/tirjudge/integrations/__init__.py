"""Adapters for training and evaluation frameworks (hosts). Each sends requests to a running judge server and reports a
missing verdict in the way of its host. An adapter needs only the client and its own host."""
