"""The HTTP service that `redismem serve` starts: the API, a chat with memory, and the page.

`redismem.slots` works without this folder and the packages that it needs.
"""
