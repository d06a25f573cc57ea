"""Words out of messages: plain text, sentences, stems, counts."""
