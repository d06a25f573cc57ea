"""The sessions of one owner, as recall over all of them reads them."""
