"""Settings: the only place that reads the environment (`REDISMEM_*`).

An invalid value raises InvalidSettings, in code as in the environment. An unknown variable is logged as a warning.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator

from redismem.errors import InvalidSettings
from redismem.events import facts
from redismem.settings.environment import (
    LONGEST_S,
    MOST_SESSIONS,
    doubts,
    unit,
    unknown_variables,
    values_from_environment,
)
from redismem.settings.names import PREFIX, suggest_setting

log = logging.getLogger("redismem")
# Settings without effect unless a provider is set.
_OF_A_MODEL = ("model", "model_api_key", "model_base_url")


class Settings(BaseModel):
    """All settings. A value given in code wins over `REDISMEM_<NAME>`, which wins over the default.

    Raises:
        InvalidSettings: A value is invalid. The text names the setting, or its variable, and never the value.
    """

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_default=True,
        hide_input_in_errors=True,
        str_strip_whitespace=True,
        protected_namespaces=("model_validate", "model_dump"),
    )

    url: str | None = Field(None, description="URL of Redis; unset: the embedded store", repr=False)
    namespace: str = Field("default", description="namespace, unless `connect(namespace=…)` or `--namespace` names one")
    username: str | None = Field(
        None, description="user of the password in the password file; unset: the user in the URL, or the default user"
    )
    password_file: str | None = Field(
        None, description="path of a file with the password of Redis, read for each new connection", repr=False
    )
    threshold: Annotated[int, Field(ge=1, le=10_000)] = Field(
        10, description="messages a window may hold before the older ones need a summary"
    )
    recent_limit: Annotated[int, Field(ge=1, le=10_000)] = Field(
        6, description="newest messages that stay verbatim; at most the threshold, by default at most 60 % of it"
    )
    idle_timeout_s: Annotated[float, Field(ge=0.001, le=LONGEST_S)] = Field(
        86_400, description="seconds without activity after which a session may be removed"
    )
    strategy: Literal["summarize", "trim", "none"] = Field(
        "summarize",
        description="treatment of the older messages: summarize, trim (drop them without a summary) or none",
    )
    threshold_tokens: Annotated[int, Field(ge=0, le=100_000_000)] = Field(
        0, description="tokens a window may hold before the older messages need a summary; 0: no limit"
    )
    summaries_limit: Annotated[int, Field(ge=1, le=100)] = Field(
        4, description="summaries a session may have before the oldest are folded into one"
    )
    keep_originals: bool = Field(
        True, description="keep summarised messages readable, in compressed blocks, as long as their session lives"
    )
    train_dictionaries: bool = Field(True, description="let workers train dictionaries that compress originals better")
    open_call_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        600, description="seconds a tool call may wait for its result before it is summarised without it"
    )
    model_provider: Literal["extractive", "openai", "gemini", "anthropic"] = Field(
        "extractive", description="provider of summaries; extractive needs no model and no network"
    )
    model: str | None = Field(
        None, description="model that writes summaries; required with every provider except extractive"
    )
    model_api_key: SecretStr | None = Field(None, description="API key of the provider")
    model_base_url: str | None = Field(
        None, description="base URL of the provider's API; unset: the provider's own address"
    )
    model_allow_http: bool = Field(False, description="allow a base URL without TLS")
    model_max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = Field(
        "max_completion_tokens", description="field in which an OpenAI-compatible server takes the limit of its answer"
    )
    chat_instruction: Annotated[str, Field(min_length=1, max_length=20_000)] | None = Field(
        None,
        description="system message of the chat's model; unset: a helpful assistant that takes facts as background",
    )
    chat_alternate: bool = Field(
        False,
        description="let the chat send one system message, then user and assistant in turn, as chat templates of "
        "Mistral, Gemma and Llama require",
    )
    embed: str | None = Field(
        None,
        description="embedding model for semantic recall, such as openai:text-embedding-3-small, or wordllama, which "
        "works offline; unset: words alone",
    )
    embed_api_key: SecretStr | None = Field(
        None,
        description="API key of the embedding API; unset: the summary model's, for the same provider and address",
    )
    embed_base_url: str | None = Field(
        None, description="base URL of the embedding API; unset: the provider's own address"
    )
    embed_dimensions: Annotated[int, Field(ge=0, le=4_096)] = Field(
        0, description="dimensions to request, each one byte per vector in Redis; 0: the model's default"
    )
    embed_timeout_s: Annotated[float, Field(ge=0.01, le=30)] = Field(
        0.5, description="seconds recall may wait for the question's vector before it searches by words alone"
    )
    recall_days: bool = Field(
        True,
        description="quote recalled messages below their days, with dates behind words such as yesterday; off for a "
        "chat that writes times into its messages",
    )
    summary_tokens: Annotated[int, Field(ge=16, le=100_000)] = Field(
        500, description="length in tokens to request from the model"
    )
    summary_tokens_total: Annotated[int, Field(ge=16, le=100_000)] = Field(
        1_750,
        description="length in tokens of all summaries of a session together, and of an extractive or folded summary",
    )
    lease_s: Annotated[float, Field(ge=0.05, le=3_600)] = Field(
        30, description="seconds without a sign of life from a worker before another takes over its session"
    )
    summary_timeout_s: Annotated[float, Field(ge=0.05, le=3_600)] = Field(
        120, description="seconds a summary may take, including all its requests"
    )
    max_summary_bytes: Annotated[int, Field(ge=64, le=1024 * 1024)] = Field(
        16 * 1024, description="largest size of a summary's text"
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        5, description="failed attempts before the extractive summariser writes a summary, or the session is dead"
    )
    extractive_after_s: Annotated[float, Field(ge=0, le=LONGEST_S)] = Field(
        900,
        description="seconds a session waits for a model before the extractive summariser writes; 0: never",
    )
    max_backoff_s: Annotated[float, Field(ge=0.001, le=86_400)] = Field(
        300, description="longest pause before the next attempt at a summary"
    )
    tick_s: Annotated[float, Field(ge=0.01, le=3_600)] = Field(1, description="seconds between two polls of the queues")
    max_sessions: Annotated[int, Field(ge=1, le=MOST_SESSIONS)] = Field(
        1_000, description="sessions a namespace may hold"
    )
    shards: Annotated[int, Field(ge=1, le=4_096)] = Field(
        64,
        description="hash tags that sessions are spread over, at most 10,000 each; fixed once a namespace is used",
    )
    max_message_bytes: Annotated[int, Field(ge=64, le=64 * 1024 * 1024)] = Field(
        8 * 1024 * 1024, description="largest stored size of a message"
    )
    max_batch_count: Annotated[int, Field(ge=1, le=1_000)] = Field(1_000, description="messages an append may hold")
    max_window_count: Annotated[int, Field(ge=10, le=1_000_000)] = Field(
        10_000, description="messages a window may hold; an append beyond it is refused"
    )
    max_window_bytes: Annotated[int, Field(ge=64 * 1024, le=512 * 1024 * 1024)] = Field(
        24 * 1024 * 1024,
        description="stored size of an append; once the messages over 4 KiB in a window reach half of it, the oldest "
        "bodies move to the originals",
    )
    max_pinned_count: Annotated[int, Field(ge=0, le=1_000)] = Field(
        100, description="pinned messages a session may hold; an append beyond it is refused"
    )
    max_pinned_bytes: Annotated[int, Field(ge=0, le=64 * 1024 * 1024)] = Field(
        256 * 1024, description="largest stored size of all pinned messages of a session together"
    )
    max_value_bytes: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] = Field(
        64 * 1024, description="largest stored size of a state value"
    )
    max_params_count: Annotated[int, Field(ge=1, le=10_000)] = Field(256, description="params a session may hold")
    deadline_s: Annotated[float, Field(ge=0.01, le=120)] = Field(
        5, description="seconds a call may take, including its retries"
    )
    reply_timeout_s: Annotated[float, Field(ge=0.01, le=120)] = Field(
        1, description="seconds to wait for a reply before a call is retried"
    )
    confirm: Annotated[int, Field(ge=0, le=64)] = Field(
        0, description="replicas that must have an append before it is acknowledged; 0: does not wait for replicas"
    )
    confirm_timeout_s: Annotated[float, Field(ge=0.001, le=60)] = Field(
        1, description="seconds to wait for these replicas"
    )
    live_lease_s: Annotated[float, Field(ge=0.2, le=3_600)] = Field(
        15, description="seconds without a sign of life from the process of a running turn before another ends the turn"
    )
    live_keep_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        300, description="seconds for which the events of an ended turn stay readable"
    )
    max_turn_bytes: Annotated[int, Field(ge=1024, le=64 * 1024 * 1024)] = Field(
        1024 * 1024, description="largest size of the events of a turn"
    )
    max_waiting_turns: Annotated[int, Field(ge=0, le=64)] = Field(
        8, description="turns of a session that may wait while another runs"
    )
    live_poll_s: Annotated[float, Field(ge=0.02, le=60)] = Field(
        0.25, description="seconds between two reads of a followed turn, where Redis does not push its events"
    )
    fallback: bool = Field(
        False, description="serve turns from this process while Redis is away, and replay them afterwards"
    )
    fallback_after_s: Annotated[float, Field(ge=0.01, le=600)] = Field(
        1, description="with the fallback: seconds without a reply before Redis counts as away"
    )
    max_cached_sessions: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1_000, description="with the fallback: sessions whose last context this process caches"
    )
    max_cached_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = Field(
        64 * 1024 * 1024, description="with the fallback: size of the cached contexts"
    )
    max_backlog_count: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        10_000, description="with the fallback: messages this process accepts while Redis is away"
    )
    max_backlog_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = Field(
        64 * 1024 * 1024, description="with the fallback: size of the messages this process accepts while Redis is away"
    )
    max_recalled_sessions: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        1_000,
        description="with recall: sessions whose originals this process caches",
    )
    max_recalled_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = Field(
        64 * 1024 * 1024, description="with recall: size of the cached originals; 0: no cache"
    )
    max_connections: Annotated[int, Field(ge=1, le=10_000)] = Field(
        64, description="connections of a blocking Memory; further calls wait for a free one"
    )

    def __init__(self, **given: Any) -> None:
        fields = type(self).model_fields
        variables = {name: value for name, value in values_from_environment(fields).items() if name not in given}
        for variable, warning in unknown_variables(fields).items():
            log.warning("%s", warning, extra=facts(op="settings", setting=variable))
        try:
            super().__init__(**variables | given)
        except ValidationError as refused:
            raise InvalidSettings("; ".join(_line(error, variables) for error in refused.errors())) from None

    @model_validator(mode="before")
    @classmethod
    def _recent_by_default_within_threshold(cls, given: dict[str, Any]) -> dict[str, Any]:
        try:
            threshold = int(given["threshold"])
        except (KeyError, TypeError, ValueError, OverflowError):  # the default, or refused by its own validator
            return given
        if "recent_limit" in given:
            return given
        default = cls.model_fields["recent_limit"].default
        return {
            **given,
            "recent_limit": max(1, min(default, threshold * default // cls.model_fields["threshold"].default)),
        }

    @model_validator(mode="after")
    def _recent_within_threshold(self) -> Self:
        if self.recent_limit > self.threshold:
            raise ValueError(f"recent_limit {self.recent_limit} is over threshold {self.threshold}")
        if self.threshold > self.max_window_count:
            raise ValueError(f"threshold {self.threshold} is over max_window_count {self.max_window_count}")
        if self.recent_limit == self.threshold > 1 and self.strategy == "summarize":
            log.warning(
                "recent_limit equals the threshold, %d: each further message needs a summary of its own",
                self.threshold,
                extra=facts(op="settings", setting="REDISMEM_RECENT_LIMIT"),
            )
        return self

    @model_validator(mode="after")
    def _seconds_and_no_other_unit(self) -> Self:
        for name, warning in doubts(self.idle_timeout_s, self.tick_s, self.extractive_after_s).items():
            variable = PREFIX + name.upper()
            extra = facts(op="settings", setting=variable)
            log.warning("%s (%s) is in seconds: %s", name, variable, warning, extra=extra)
        return self

    @classmethod
    def given(cls, settings: Self | None, fallback: bool | None = None) -> Self:
        """Return these settings, or the environment's for `None`; with this `fallback`, unless that is `None`.

        Raises InvalidSettings for any other type.
        """
        if settings is not None and not isinstance(settings, Settings):
            raise InvalidSettings(f"settings is of type {type(settings).__name__}: pass Settings(...)")
        chosen = settings or cls()
        return chosen if fallback is None else chosen.model_copy(update={"fallback": fallback})

    @property
    def unused_of_model(self) -> list[str]:
        """The given variables that choose a model but have no effect, because no provider is set."""
        given = [f"{PREFIX}{name.upper()}" for name in _OF_A_MODEL if getattr(self, name) is not None]
        return given if self.model_provider == "extractive" else []

    @property
    def idle_timeout_ms(self) -> int:
        """`idle_timeout_s` in milliseconds."""
        return int(self.idle_timeout_s * 1000)

    @property
    def kept_ms(self) -> int:
        """The time from a session's last activity to its expiry, in milliseconds."""
        return self.idle_timeout_ms

    @property
    def lookahead_ms(self) -> int:
        """The time before its expiry at which a worker with an `on_evict` queues a session.

        Long enough that a worker, which looks on every tenth tick, finds the session first, or another worker does in
        its place.
        """
        return int((20 * self.tick_s + 2 * self.lease_s) * 1000)

    @property
    def claims_limit(self) -> int:
        """The number of claims before a session is dead.

        If `extractive_after_s` is not 0, the extractive summariser has the last claim.
        """
        return self.max_attempts + (self.extractive_after_s > 0)

    @property
    def overdue_count(self) -> int:
        """The number of messages above which a window is overdue. With the strategy none, that is `max_window_count`.

        It is at most max_window_count, because append.lua checks max_window_count only if a window is overdue.
        """
        return self.max_window_count if self.strategy == "none" else min(self.threshold, self.max_window_count)

    @property
    def overdue_tokens(self) -> int | str:
        """The tokens above which a window of more than `recent_limit` messages is overdue; "-" means no limit."""
        return self.threshold_tokens if self.threshold_tokens and self.strategy != "none" else "-"

    def is_overdue(self, message_count: int, tokens: int) -> bool:
        """True if a window needs a summary, by the rule of `lua/include/overdue.lua`."""
        if message_count > self.overdue_count:
            return True
        return self.overdue_tokens != "-" and message_count > self.recent_limit and tokens > self.threshold_tokens


def _line(error: Any, variables: Collection[str]) -> str:
    """Return the line of an error text about one setting: its name or variable, the error and the unit."""
    name = ".".join(map(str, error["loc"]))
    if error["type"] == "extra_forbidden":
        near = suggest_setting(name, Settings.model_fields)
        return f"{name} is not a setting" + (f"; did you mean {near}?" if near else "")
    if name in variables:
        return f"{PREFIX}{name.upper()} is invalid ({error['msg']}{unit(name)})"
    if name:
        return f"{name}: {error['msg']}{unit(name)}"
    sources = [PREFIX + variable.upper() for variable in variables if variable in error["msg"].split()]
    text = error["msg"].removeprefix("Value error, ")
    return f"settings: {text}" + (f" ({', '.join(sources)})" if sources else "")
