"""The memory over HTTP: routes, a chat that remembers, and what they need. Started by `redismem serve`.

`redismem.slots` works without a server, and without the packages that one needs.
"""
