"""What messages say, and how Anthropic and Gemini want it written."""
