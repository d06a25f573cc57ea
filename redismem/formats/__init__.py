"""The message formats of providers: reading them, pairing tool calls with results, cutting, converting."""
