"""How do MCP clients reach the memory service? A thin proxy: it knows the REST contract and holds no memory itself.

It must not import the service, keep user data, or decide anything about memories.
"""
