"""Imports all that processes of tests need, so that those that are forked afterwards have it."""

import redismem.blocking.memory
import redismem.cli.app
import redismem.cli.serve
import redismem.cli.worker
import redismem.models
import redismem.project.project
import redismem.web.server
import redismem.workers.scheduler  # noqa: F401 (that it is loaded is the purpose)
from redismem.web.app import openapi

openapi()
