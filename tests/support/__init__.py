"""What tests share: servers, proxies, conversations, scripts called without a memory. No test and no fixture."""
