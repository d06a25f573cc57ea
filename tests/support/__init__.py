"""Shared code of the tests: servers, proxies, conversations, scripts called without a memory. No tests, no fixtures."""
