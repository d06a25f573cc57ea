"""Text of messages: plain text, sentences, stems and word counts."""
