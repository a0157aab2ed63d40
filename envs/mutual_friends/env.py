"""`parley/MutualFriends-v1`: one side of MutualFriends as a Gymnasium environment, the other side a given player.

The rules are in `game.py`; this is its face for one row. Spaces, observations and actions are in `task.py`.
"""

from __future__ import annotations

from typing import Any

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.rendering import TextRenderedEnv
from parley.envs.mutual_friends.events import ChatEvent
from parley.envs.mutual_friends.game import FriendsGame
from parley.envs.mutual_friends.play import FriendsAgent, FriendsSession
from parley.envs.mutual_friends.scenario import FriendsScenario
from parley.envs.mutual_friends.scripted.bots import FriendsBot
from parley.envs.mutual_friends.task import ROW, ChatTask, chat_outcome, shown


class MutualFriendsEnv(TextRenderedEnv[dict[str, Any], dict[str, Any]]):
    """Find the one friend that your partner has too, by talking (MutualFriends).

    ## Description
    Both sides have a table of friends, and exactly one friend stands in both. They take turns; a turn is an utterance or the
    selection of a friend. When both sides' last selections are the common friend, the chat ends. You play one side, `partner`
    the other.

    ## Action Space
    A `Dict`:

    | key | space | meaning |
    |---|---|---|
    | selection | `Discrete(N + 1)` | 0 to speak; i + 1 selects friend i of your table |
    | words | `MultiDiscrete` (W,) | ids of what you say, padded with `<pad>`; ignored in a selection |

    `env.unwrapped.spaces.say` and `.select` write such actions. An utterance without words and the selection of a friend that
    your table does not have are said as `<unk>` and counted.

    ## Observation Space
    A `Dict`, always from your own perspective; ids of entities begin at 1, and 0 is none:

    | key | space | meaning |
    |---|---|---|
    | kinds | `Box` int64 (M,) in 0..4 | of each event: none yet, your words, your selection, their words, their selection |
    | num_events | `Discrete(M + 1)` | how many events there have been |
    | selected | `Box` int64 (M, C) | entities of the friend that was selected |
    | table | `Box` int64 (N, C) | your friends, one a row, as entities |
    | words | `Box` int64 (M, W) | ids of what was said |

    ## Starting State
    A scenario, drawn afresh, and a coin that decides who begins. If it is the partner, its first event has happened already.
    `reset(options={"scenario": FriendsScenario(...)})` sets the scenario. One seed gives one episode.

    ## Reward
    0 until the end. Then 1 less `event_cost` for every event if you agree, else 0; always within [0, 1].

    ## Episode End
    Termination: both agree, or `rules.max_events` events have happened. Truncation: never.

    ## Information
    Empty until the end. Then `agreed`, `num_events`, `num_selections`, `num_illegal` and `transcript` (events of side and
    text); pairs are by side.

    ## Arguments
    * `partner`: any `FriendsAgent`; the scripted `FriendsBot` when not given.
    * `side`: 0 or 1, yours.
    * `render_mode`: `"ansi"` returns text from `render()`; `"human"` writes it to standard error after every turn.
    * `linker`, `vocabulary`, `scenarios`, `options`, `rules`, `event_cost`: see `ChatTask`.

    ## References
    * He, Balakrishnan, Eric, Liang (2017). Learning Symmetric Collaborative Dialogue Agents with Dynamic
      Knowledge Graph Embeddings.
    * Niu, Bansal (2018). Adversarial Over-Sensitivity and Over-Stability Strategies for Dialogue Models, section 2.2.

    ## Version History
    * v1: first version.
    """

    def __init__(self, partner: FriendsAgent | None = None, side: int = 0, render_mode: str | None = None, **task: Any) -> None:
        if side not in (0, 1):
            raise ConfigError("there is no such side", where="MutualFriendsEnv", got=repr(side), fix="side 0 or 1")
        super().__init__(render_mode)
        self.task = ChatTask(**task)
        self.partner = partner or FriendsBot(self.task.finder)
        self.side = side
        self.spaces = self.task.spaces
        self.action_space, self.observation_space = self.spaces.action, self.spaces.observation
        self._game: FriendsGame | None = None
        self._session: FriendsSession | None = None
        self._num_illegal = [0, 0]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Starts a chat.

        Args:
            seed: starts the generator that all later chats draw from.
            options: `{"scenario": FriendsScenario}` sets the scenario.

        Raises:
            ConfigError: an unknown option, one of the wrong type, or a scenario beyond the bounds.
        """
        super().reset(seed=seed)
        given = dict(options or {})
        scenario = given.pop("scenario", None)
        if given or not isinstance(scenario, FriendsScenario | None):
            fix = 'the only one is {"scenario": FriendsScenario(...)}'
            raise ConfigError("wrong option of reset", got=repr(options), fix=fix)
        chat_seed = int(self.np_random.integers(2**63))
        if scenario is None:
            scenario = self.task.draw(self.np_random)
        else:
            self.task.require(scenario)
        self._game = FriendsGame(1, self.task.rules)
        self._game.enter([ROW], [scenario], [chat_seed])
        self._session = self.partner.join(self._game.view(1 - self.side))
        self._session.enter([ROW])
        self._num_illegal = [0, 0]
        self._let_partner_act()
        self._show()
        return self.spaces.observe(self._game, self.side), {}

    def step(self, action: dict[str, Any]) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """Speaks or selects, then lets the partner have its turn.

        Args:
            action: see the class.

        Raises:
            ScenarioError: there is no chat going on, or the action lies outside the action space.
        """
        game = self._game
        if game is None or game.is_over(ROW):
            raise ScenarioError("no chat is going on", where="step of MutualFriendsEnv", fix="call reset() first")
        act, illegal = self.spaces.act(action, len(game.scenario(ROW).tables[self.side]))
        self._num_illegal[self.side] += illegal
        self._add(game.event(ROW, self.side, act))
        self._let_partner_act()
        self._show()
        over = game.is_over(ROW)
        info = chat_outcome(game, self._num_illegal) if over else {}
        return self.spaces.observe(game, self.side), self.task.reward(game), over, False, info

    def _text(self) -> str:
        assert self._game is not None
        return _rendered(self._game, self.side)

    def _add(self, event: ChatEvent) -> None:
        assert self._game is not None
        assert self._session is not None
        self._game.add(ROW, event)
        if not self._game.is_over(ROW):
            self._session.hear([ROW], [event if event.side != self.side else event.plain()])

    def _let_partner_act(self) -> None:
        assert self._game is not None
        assert self._session is not None
        if self._game.rows_to_act(1 - self.side):
            (act,) = self._session.act([ROW])
            self._add(self._game.event(ROW, 1 - self.side, act))


def _rendered(game: FriendsGame, side: int) -> str:
    scenario = game.scenario(ROW)
    lines = [" | ".join(attribute.name for attribute in scenario.attributes)]
    lines += [f"{i}: {' | '.join(item)}" for i, item in enumerate(scenario.tables[side])]
    lines += [f"{'you' if event.side == side else 'they'}: {shown(event)}" for event in game.heard[ROW]]
    if game.is_over(ROW):
        lines.append("found" if game.agreed[ROW] else "not found")
    return "\n".join(lines)
