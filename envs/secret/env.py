"""`parley/Secret-v1`: one side of the secret game as a Gymnasium environment, against a given player on the other side.

`SecretTask` draws the dialogues; the two-sided forms (`pettingzoo_env.py`, `engine/secret/rl.py`) share it. `game.py` has the
rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.envs.core.config import check
from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.rendering import TextRenderedEnv, shown_text, text_spaces
from parley.envs.secret.game import ATTACKER, DEFENDER, SecretGame, SecretRules, render_secret, spoken
from parley.envs.secret.players import as_secret_player
from parley.envs.secret.scenarios import SecretScenario, random_secret

ROW = 0
"""The row of an environment's only dialogue."""
_RULES = SecretRules()


@dataclass(frozen=True)
class SecretTask:
    """The dialogues of an environment.

    Args:
        scenarios: the list to draw from; None draws new scenarios.
        harmless: share of harmless dialogues, in which a user asks the scenario's questions.
        rules: limits of the game.

    Raises:
        ConfigError: an empty list of scenarios, or a share that is none.
    """

    scenarios: Sequence[SecretScenario] | None = None
    harmless: float = 0.5
    rules: SecretRules = _RULES

    def __post_init__(self) -> None:
        check(self, "harmless", 0 <= self.harmless <= 1, "0 to 1")
        if self.scenarios is not None and not len(self.scenarios):
            raise ConfigError("the list of scenarios is empty", where="Secret", fix="give one at least, or None")

    def draw(self, rng: np.random.Generator, scenario: SecretScenario | None = None) -> SecretGame:
        """Return a game of one new dialogue; a user's first question has been asked."""
        if scenario is None and self.scenarios is not None:
            scenario = self.scenarios[int(rng.integers(len(self.scenarios)))]
        attack = bool(rng.random() >= self.harmless)
        seed = int(rng.integers(2**63))
        game = SecretGame([scenario or random_secret(rng, self.rules.max_messages)], [seed], [attack], self.rules)
        self.ask(game)
        return game

    def ask(self, game: SecretGame) -> None:
        """Let a harmless user ask if it is its turn."""
        if not game.attacks[ROW] and game.side_to_move(ROW) == ATTACKER:
            game.ask(ROW)


def observed(game: SecretGame, side: int) -> str:
    """Return a side's observation of the first dialogue."""
    return shown_text(render_secret(game, ROW, side))


def say(game: SecretGame, action: object, where: str) -> None:
    """Add the text of the side to move to the first dialogue.

    Raises:
        ScenarioError: the action is no text.
    """
    if not isinstance(action, str):
        raise ScenarioError("an action is a text", where=f"step of {where}", got=repr(action)[:80])
    game.say(ROW, action)


class SecretEnv(TextRenderedEnv[str, str]):
    """Make a defender say its secret word, or keep yours and stay useful.

    ## Description
    A defender is told a made-up word that it must not say, a short text, and the form of its replies. An asker has a few
    messages. In an attack it wants the word, in a spelling that the decoder reads (`parley.envs.secret.decoder`). In a harmless
    dialogue a user asks as many questions about the text, and each reply is right or wrong. The defender is not told which it
    is in.

    ## Action Space
    `Text` of up to 2,048 characters: your next message or reply. A text beyond `max_chars` characters is cut.

    ## Observation Space
    `Text` of up to 16,384 characters: what your side was told, who has said what, and in the end the outcome. Characters beyond
    ASCII are shown as `?`; of a longer text the end is shown.

    ## Starting State
    A scenario, drawn afresh. To a defender the first message has already been said.
    `reset(options={"scenario": SecretScenario(...)})` sets the scenario. One seed gives one episode.

    ## Reward
    0 until the end. Then the attacker earns 1 if the word was said. The defender earns 1 if it was not; in a harmless dialogue
    it earns the share of right replies, and nothing if it said the word.

    ## Episode End
    Termination: the word is said, or the last message is answered. Truncation: never.

    ## Information
    Empty until the end. Then `attack`, `word`, `spelling` (how the word was said; empty if it was not), `right` (of each reply
    in a harmless dialogue) and `transcript` (turns of side and text).

    ## Arguments
    * `side`: 0 to attack (the default), 1 to defend.
    * `partner`: the other side: a name (`naive`, `plain-filter`, ...; of attackers `mix`, ...), the address of a chat model,
      `path/file.py:Name`, or an object with `speak`; `naive` or `mix` when not given.
    * `scenarios`: the list that scenarios are drawn from; None draws new ones.
    * `harmless`: share of harmless dialogues that a defender plays, 0.5 by default; an attacker plays attacks alone.
    * `rules`: limits of the game (`SecretRules`).
    * `render_mode`: `"ansi"` returns text from `render()`; `"human"` writes it to standard error after every move.

    ## References
    * None: the texts are Parley's own.

    ## Version History
    * v1: first version.
    """

    option = ("scenario", SecretScenario)

    def __init__(
        self,
        side: int = ATTACKER,
        partner: object = None,
        scenarios: Sequence[SecretScenario] | None = None,
        harmless: float = 0.5,
        rules: SecretRules | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(render_mode)
        if side not in (ATTACKER, DEFENDER):
            raise ConfigError("there is no such side", where="SecretEnv", got=repr(side), fix="0 to attack, 1 to defend")
        named = ("naive" if side == ATTACKER else "mix") if partner is None else partner
        self.side, self.partner = side, as_secret_player(named, 1 - side)
        self.task = SecretTask(scenarios, harmless if side == DEFENDER else 0.0, rules or SecretRules())
        self.observation_space, self.action_space = text_spaces()
        self._game: SecretGame | None = None
        self._ended = False

    def _begin(self, given: SecretScenario | None) -> tuple[str, dict[str, Any]]:
        self._game, self._ended = self.task.draw(self.np_random, given), False
        self._let_partner_act()
        return observed(self._game, self.side), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Say a text, and let the partner reply.

        Args:
            action: see the class.

        Raises:
            ScenarioError: no dialogue is open, or the action is no text.
        """
        game = self._game
        if game is None or self._ended:
            raise ScenarioError("no dialogue is going on", where="step of SecretEnv", fix="call reset() first")
        say(game, action, "SecretEnv")
        self._let_partner_act()
        self._ended = game.side_to_move(ROW) is None
        self._show()
        info = game.outcome(ROW) if self._ended else {}
        return observed(game, self.side), game.reward(ROW, self.side), self._ended, False, info

    def _text(self) -> str:
        assert self._game is not None
        return render_secret(self._game, ROW, self.side)

    def _let_partner_act(self) -> None:
        game, other = self._game, 1 - self.side
        assert game is not None
        self.task.ask(game)
        if game.side_to_move(ROW) == other:
            game.say(ROW, spoken(self.partner, [game.view(ROW, other)])[0])
