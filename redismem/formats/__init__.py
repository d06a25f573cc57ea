"""The message formats of providers: tool calls and results, safe cut points, Anthropic, Gemini."""
