"""Settings: the only place that reads the environment (`REDISMEM_*`).

A value from the environment that is out of range or unreadable is replaced by its default, with one logged warning that
names the variable; a value that says what may be removed is replaced by the one that removes nothing, with a logged
error. A variable that no setting has is warned of. The same value given in code raises InvalidSettings.
"""

from __future__ import annotations

import difflib
import logging
from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from redismem.errors import InvalidSettings
from redismem.events import facts
from redismem.settings.environment import LONGEST_S, MOST_SESSIONS, PREFIX, Environment, doubts, unit

log = logging.getLogger("redismem")
# What says nothing without a provider.
_OF_A_MODEL = ("model", "model_api_key", "model_base_url")


class Settings(BaseSettings):
    """Every number that can be tuned. Given in code first, then `REDISMEM_<NAME>`, then the default.

    Raises InvalidSettings for a value given in code that is out of range.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, frozen=True, extra="forbid", hide_input_in_errors=True, str_strip_whitespace=True
    )

    url: str | None = Field(None, description="where Redis is; without it the embedded store", repr=False)
    threshold: Annotated[int, Field(ge=1, le=10_000)] = Field(
        10, description="messages a window may hold before the older ones are due for a summary"
    )
    recent_limit: Annotated[int, Field(ge=1, le=10_000)] = Field(
        6, description="newest messages that stay verbatim; below the threshold, and by default not over 6 of 10 of it"
    )
    idle_timeout_s: Annotated[float, Field(ge=0.001, le=LONGEST_S)] = Field(
        86_400, description="seconds without activity after which a session may be removed"
    )
    strategy: Literal["summarize", "trim", "none"] = Field(
        "summarize",
        description="what becomes of the older messages: summarize, trim (no summary stands for them), none",
    )
    threshold_tokens: Annotated[int, Field(ge=0, le=100_000_000)] = Field(
        0, description="tokens a window may hold before it is overdue as well; 0: no such limit"
    )
    summaries_limit: Annotated[int, Field(ge=1, le=100)] = Field(
        4, description="summaries a session may have before the oldest are folded into one"
    )
    keep_originals: bool = Field(
        True, description="whether summarised messages stay readable, compressed, as long as their session"
    )
    train_dictionaries: bool = Field(
        True, description="whether workers train dictionaries that originals are compressed with"
    )
    open_call_s: Annotated[float, Field(ge=0, le=86_400)] = Field(
        600, description="seconds a tool call without a result is waited for before it may be summarised"
    )
    model_provider: Literal["extractive", "openai", "gemini", "anthropic"] = Field(
        "extractive", description="who writes summaries; extractive needs no model and no network"
    )
    model: str | None = Field(None, description="the model's name; required with a provider other than extractive")
    model_api_key: SecretStr | None = Field(None, description="the provider's key")
    model_base_url: str | None = Field(None, description="where the provider's paths begin, if not at its own address")
    model_allow_http: bool = Field(False, description="whether that address may do without TLS")
    model_max_tokens_field: Literal["max_completion_tokens", "max_tokens"] = Field(
        "max_completion_tokens", description="what an OpenAI-compatible server calls the limit of its answer"
    )
    embed: str | None = Field(
        None,
        description="who makes vectors of messages, such as openai:text-embedding-3-small; without it nobody does",
    )
    embed_api_key: SecretStr | None = Field(
        None, description="its key; without one the model's, if both are of one provider at one address"
    )
    embed_base_url: str | None = Field(None, description="where its paths begin, if not at the provider's own address")
    embed_dimensions: Annotated[int, Field(ge=0, le=4_096)] = Field(
        0, description="dimensions a vector is asked to have, a byte each in Redis; 0: as many as the model gives"
    )
    embed_timeout_s: Annotated[float, Field(ge=0.01, le=30)] = Field(
        0.5, description="seconds a question may wait for its vector before it is recalled by its words alone"
    )
    summary_tokens: Annotated[int, Field(ge=16, le=100_000)] = Field(
        500, description="length a model's summary is asked to have"
    )
    summary_tokens_total: Annotated[int, Field(ge=16, le=100_000)] = Field(
        1_500, description="length of all summaries of a session together: what an extractive one has, and a folded one"
    )
    lease_s: Annotated[float, Field(ge=0.05, le=3_600)] = Field(
        30, description="seconds a worker may be silent before another takes over its session"
    )
    summary_timeout_s: Annotated[float, Field(ge=0.05, le=3_600)] = Field(
        120, description="seconds a summary may take, all its requests together"
    )
    max_summary_bytes: Annotated[int, Field(ge=64, le=1024 * 1024)] = Field(
        16 * 1024, description="size of a summary's text"
    )
    max_attempts: Annotated[int, Field(ge=1, le=100)] = Field(
        5, description="failed attempts at a summary before the extractive summariser writes it, or the session is dead"
    )
    extractive_after_s: Annotated[float, Field(ge=0, le=LONGEST_S)] = Field(
        900,
        description="seconds a session waits for a model before the extractive summariser writes; 0: it never does",
    )
    max_backoff_s: Annotated[float, Field(ge=0.001, le=86_400)] = Field(
        300, description="longest pause before the next attempt at a summary"
    )
    tick_s: Annotated[float, Field(ge=0.01, le=3_600)] = Field(1, description="seconds between two looks at the queues")
    max_sessions: Annotated[int, Field(ge=1, le=MOST_SESSIONS)] = Field(
        1_000, description="sessions a namespace may hold"
    )
    shards: Annotated[int, Field(ge=1, le=4_096)] = Field(
        64, description="hash tags the sessions are spread over, at most 10,000 each; fixed once a namespace is used"
    )
    max_message_bytes: Annotated[int, Field(ge=64, le=64 * 1024 * 1024)] = Field(
        1024 * 1024, description="stored size of one message"
    )
    compress_above_bytes: Annotated[int, Field(ge=0, le=64 * 1024 * 1024)] = Field(
        0, description="stored size over which a message is compressed in the window as well; 0: none is"
    )
    max_batch_count: Annotated[int, Field(ge=1, le=1_000)] = Field(1_000, description="messages in one append")
    max_window_count: Annotated[int, Field(ge=10, le=1_000_000)] = Field(
        10_000, description="messages a window may hold; an append beyond it is refused"
    )
    max_pinned_count: Annotated[int, Field(ge=0, le=1_000)] = Field(
        100, description="messages a session may have pinned; an append beyond it is refused"
    )
    max_pinned_bytes: Annotated[int, Field(ge=0, le=64 * 1024 * 1024)] = Field(
        256 * 1024, description="stored size of the messages a session may have pinned, all together"
    )
    max_value_bytes: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] = Field(
        64 * 1024, description="stored size of one state value"
    )
    max_params_count: Annotated[int, Field(ge=1, le=10_000)] = Field(256, description="params a session may hold")
    deadline_s: Annotated[float, Field(ge=0.01, le=120)] = Field(
        5, description="seconds a call may take, however often it is sent"
    )
    reply_timeout_s: Annotated[float, Field(ge=0.01, le=120)] = Field(
        1, description="seconds to wait for a reply before a call is sent again"
    )
    confirm: Annotated[int, Field(ge=0, le=64)] = Field(
        0, description="replicas that must have an append before it is acknowledged; 0: none is asked"
    )
    confirm_timeout_s: Annotated[float, Field(ge=0.001, le=60)] = Field(1, description="seconds they may take for it")
    fallback: bool = Field(False, description="whether this process serves turns while Redis is away, and replays them")
    fallback_after_s: Annotated[float, Field(ge=0.01, le=600)] = Field(
        1, description="with the fallback: seconds without an answer after which Redis counts as away"
    )
    max_cached_sessions: Annotated[int, Field(ge=1, le=1_000_000)] = Field(
        1_000, description="with the fallback: sessions whose last context this process keeps"
    )
    max_cached_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = Field(
        64 * 1024 * 1024, description="with the fallback: size of those contexts"
    )
    max_backlog_count: Annotated[int, Field(ge=1, le=10_000_000)] = Field(
        10_000, description="with the fallback: messages this process accepts while Redis is away"
    )
    max_backlog_bytes: Annotated[int, Field(ge=1024, le=1 << 40)] = Field(
        64 * 1024 * 1024, description="with the fallback: size of those messages"
    )
    max_recalled_sessions: Annotated[int, Field(ge=0, le=1_000_000)] = Field(
        1_000,
        description="with recall: sessions this process keeps blocks of, so that they are not read in each turn",
    )
    max_recalled_bytes: Annotated[int, Field(ge=0, le=1 << 40)] = Field(
        64 * 1024 * 1024, description="with recall: size of what is kept of them; 0: nothing is"
    )
    max_connections: Annotated[int, Field(ge=1, le=10_000)] = Field(
        64, description="connections of one blocking Memory; further calls wait for one"
    )

    def __init__(self, **given: Any) -> None:
        try:
            super().__init__(**given)
        except ValidationError as refused:
            raise InvalidSettings("; ".join(_line(error) for error in refused.errors())) from None

    @model_validator(mode="before")
    @classmethod
    def _recent_by_default_within_threshold(cls, given: dict[str, Any]) -> dict[str, Any]:
        threshold = given.get("threshold")
        if "recent_limit" in given or not isinstance(threshold, int):
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
                "recent_limit is the threshold, %d: every message beyond it gets a summary of its own",
                self.threshold,
                extra=facts(op="settings", setting="REDISMEM_RECENT_LIMIT"),
            )
        return self

    @model_validator(mode="after")
    def _seconds_and_no_other_unit(self) -> Self:
        for name, meant in doubts(self.idle_timeout_s, self.tick_s, self.extractive_after_s).items():
            variable = PREFIX + name.upper()
            known = facts(op="settings", setting=variable)
            log.warning("%s (%s) is in seconds: %s", name, variable, meant, extra=known)
        return self

    @classmethod
    def given(cls, settings: Self | None) -> Self:
        """These settings, else those of the environment. Raises InvalidSettings for what is none."""
        if settings is not None and not isinstance(settings, Settings):
            raise InvalidSettings(f"settings is none of the type {type(settings).__name__}: pass Settings(...)")
        return settings or cls()

    @property
    def unused_of_model(self) -> list[str]:
        """The variables that are set and say which model is asked, though none is, for want of a provider."""
        given = [f"{PREFIX}{name.upper()}" for name in _OF_A_MODEL if getattr(self, name) is not None]
        return given if self.model_provider == "extractive" else []

    @property
    def idle_timeout_ms(self) -> int:
        """`idle_timeout_s` in milliseconds."""
        return int(self.idle_timeout_s * 1000)

    @property
    def kept_ms(self) -> int:
        """How long a session is there after its last activity, unless it is evicted.

        That is past its timeout for long enough that a worker finds it, who looks on every tenth tick, or another one
        in its place.
        """
        return self.idle_timeout_ms + int((20 * self.tick_s + 2 * self.lease_s) * 1000)

    @property
    def uncompressed_bytes(self) -> int:
        """A message up to this size is stored as it is."""
        return min(self.compress_above_bytes or self.max_message_bytes, self.max_message_bytes)

    @property
    def claims_limit(self) -> int:
        """So often a session is claimed before it is dead: the last time is the extractive summariser's."""
        return self.max_attempts + (self.extractive_after_s > 0)

    @property
    def overdue_count(self) -> int:
        """A window with more messages is overdue: never, if nothing is to become of the older ones.

        Within max_window_count: append.lua looks at that limit only if a window is overdue.
        """
        return self.max_window_count if self.strategy == "none" else min(self.threshold, self.max_window_count)

    @property
    def overdue_tokens(self) -> int | str:
        """A window with more tokens, and more than the recent messages, is overdue; "-": there is no such limit."""
        return self.threshold_tokens if self.threshold_tokens and self.strategy != "none" else "-"

    def is_overdue(self, message_count: int, tokens: int) -> bool:
        """Whether a window has something to summarise: what `lua/include/overdue.lua` says."""
        if message_count > self.overdue_count:
            return True
        return self.overdue_tokens != "-" and message_count > self.recent_limit and tokens > self.threshold_tokens

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, Environment(settings_cls)


def _line(error: Any) -> str:
    """A refusal in words: the setting, what is wrong, the unit of what has one."""
    name = ".".join(map(str, error["loc"])) or "settings"
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, Settings.model_fields, 1)
        return f"{name} is no setting" + (f"; did you mean {near[0]}?" if near else "")
    return f"{name}: {error['msg']}{unit(name)}"
