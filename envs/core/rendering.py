"""Environments of text: the base class of those that render episodes, and the spaces of those that are played by text."""

from __future__ import annotations

import string
import sys
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

import gymnasium
from gymnasium import spaces

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.registry import nearest
from parley.envs.core.visible import visible

LONGEST_SEEN, LONGEST_SAID = 16_384, 2_048


def text_spaces() -> tuple[spaces.Text, spaces.Text]:
    """Return the spaces of observations and actions that are texts of printable ASCII and line breaks."""
    characters = string.ascii_letters + string.digits + string.punctuation + " \n"
    observations, actions = (spaces.Text(longest, min_length=0, charset=characters) for longest in (LONGEST_SEEN, LONGEST_SAID))
    return observations, actions


def shown_text(text: str) -> str:
    """Return a text as an observation: characters beyond ASCII are `?`, and of a longer one the end is shown."""
    return visible(text, keep="\n").encode("ascii", "replace").decode()[-LONGEST_SEEN:]


ObservedT = TypeVar("ObservedT")
ActionT = TypeVar("ActionT")


class TextRenderedEnv(gymnasium.Env[ObservedT, ActionT]):
    """An environment that renders its episode as text; `_game` is the episode, None before the first.

    Attributes:
        option: name and type of the one option of `reset`, which sets what is drawn otherwise.

    Args:
        render_mode: `"ansi"` returns text from `render()`; `"human"` writes it to standard error whenever `_show` is called.

    Raises:
        ConfigError: the mode is unknown.
    """

    metadata: ClassVar[dict[str, Any]] = {  # type: ignore[misc]  # Gymnasium declares it as an instance variable
        "render_modes": ["ansi", "human"],
        "render_fps": 1,
    }
    option: ClassVar[tuple[str, type[Any]]]
    _game: Any

    def __init__(self, render_mode: str | None) -> None:
        modes = self.metadata["render_modes"]
        if render_mode not in (None, *modes):
            what, where = f"unknown render mode{nearest(str(render_mode), modes)}", type(self).__name__
            raise ConfigError(what, where=where, got=repr(render_mode), fix=f"one of {', '.join(modes)}")
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[ObservedT, dict[str, Any]]:
        """Begin an episode.

        Args:
            seed: starts the generator of this and all later episodes.
            options: `{NAME: VALUE}`, of the name and the type in `option`.

        Raises:
            ConfigError: another option, one of the wrong type, or one with which no episode can begin.
        """
        super().reset(seed=seed)
        name, kind = self.option
        given = {} if options is None else options
        if not isinstance(given, Mapping) or set(given) - {name} or not isinstance(given.get(name), kind | None):
            fix = f'the only one is {{"{name}": {kind.__name__}(...)}}'
            raise ConfigError("wrong option of reset", got=repr(options), fix=fix)
        began = self._begin(given.get(name))
        self._show()
        return began

    @abstractmethod
    def _begin(self, given: Any) -> tuple[ObservedT, dict[str, Any]]:
        """Begin an episode of what is given, or else of what is drawn; return the observation and the information."""

    @abstractmethod
    def _text(self) -> str:
        """Return the episode so far."""

    def render(self) -> str | None:  # type: ignore[override]  # one of the two types that Gymnasium allows
        """Return the episode as text in mode `"ansi"`; write it to standard error in mode `"human"`.

        Raises:
            ScenarioError: no episode has begun.
        """
        if self._game is None:
            where = f"render of {type(self).__name__}"
            raise ScenarioError("there is nothing to render yet", where=where, fix="call reset() first")
        if self.render_mode is None:
            gymnasium.logger.warn('render() needs a render mode: gymnasium.make(..., render_mode="ansi")')
            return None
        text = self._text()
        if self.render_mode == "ansi":
            return text
        sys.stderr.write(text + "\n\n")
        return None

    def _show(self) -> None:
        if self.render_mode == "human":
            self.render()
