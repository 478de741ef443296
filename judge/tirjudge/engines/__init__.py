"""What generates tokens: the embedded engine, vLLM over HTTP, and the scripted double of the tests."""
