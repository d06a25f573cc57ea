"""The wire protocol with Redis: builds commands and decodes replies, without I/O."""
