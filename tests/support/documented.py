"""Makes the OpenAPI document when it is imported, so that processes that are forked afterwards have it."""

from redismem.web.app import openapi

openapi()
