"""How a call travels: sent once, with what only the transport can do about a refusal. Trying again is the store's."""
