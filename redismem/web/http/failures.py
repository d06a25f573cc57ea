"""The errors that leave a route: logged by their kind, and answered as a problem."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any

from redismem.events import facts
from redismem.web.http.problems import Problem, to_problem

log = logging.getLogger("redismem")

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


def to_logged_problem(error: Exception, method: str, route: str) -> Problem:
    """Return the problem that reports an error, and log the error if nothing else tells what failed."""
    problem = to_problem(error)
    if problem.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        # Text and traceback stay out of the log: both may quote what a user wrote.
        kind = type(error).__name__
        log.error("%s %s failed with %s", method, route, kind, extra=facts(op="request", error=kind))
    return problem


async def send_problem(problem: Problem, send: Send) -> None:
    """Send a problem as the whole answer."""
    headers, body = problem.whole()
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def contain(app: App, *routes: str) -> App:
    """Return the application with an answer for each error that it raises. `routes` are its paths."""

    async def contained(scope: Scope, receive: Receive, send: Send) -> None:
        is_begun = False

        async def send_on(message: MutableMapping[str, Any]) -> None:
            nonlocal is_begun
            is_begun = True
            await send(message)

        try:
            await app(scope, receive, send_on)
        except Exception as error:
            path = scope["path"]
            problem = to_logged_problem(error, scope["method"], path if path in routes else "other")
            # The server sees an answer without an end and closes the connection.
            if not is_begun:
                await send_problem(problem, send)

    return contained
