"""How does Hindsight run on a bare machine? Starts real Postgres, a Redis-compatible server and Qdrant's engine.

It hands out URLs and must stay a launcher: nothing here is imported by the service or the gateway, and neither of
them can tell whether its stores were started here, by Docker or by a cloud provider.
"""
