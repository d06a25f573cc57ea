"""The message formats of providers: tool calls and their results, safe cuts, Anthropic, Gemini."""
