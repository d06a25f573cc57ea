"""The HTTP service that `redismem serve` starts: the API, a chat with memory, and the page.

`redismem.slots` needs neither this room nor its packages.
"""
