"""Gymnasium environments of one side of the negotiation game against an agent: `Negotiation-v1`, `NegotiationText-v1`.

`game.py` has the rules; an environment is the case B = 1. Spaces, observations, actions, rewards and outcomes are module
functions, because the two-sided environment of `engine/core/rllib` uses them for both sides. The text environment is for
people, language models and scripts.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from gymnasium import spaces

from parley.envs.core.errors import ConfigError, ScenarioError
from parley.envs.core.play import Utterances
from parley.envs.core.registry import nearest
from parley.envs.core.rendering import TextRenderedEnv, shown_text, text_spaces
from parley.envs.negotiation.agents import as_agent, require_same_game
from parley.envs.negotiation.domain import PAD_ID, Domain, Scenario, Vocabulary
from parley.envs.negotiation.game import OVER, SELECT, SPEAK, NegotiationGame, Rules, render_dialogue

REWARDS = ("points", "advantage")
ROW = np.zeros(1, dtype=np.int64)
"""The rows of a game of one dialogue."""
SeenT = TypeVar("SeenT")
ActT = TypeVar("ActT")


def action_space(vocabulary: Vocabulary, rules: Rules) -> spaces.Dict:
    """Return the action space of a side: token ids padded with `<pad>`, and the index of a selection."""
    words = spaces.MultiDiscrete(np.full(rules.max_words, len(vocabulary), dtype=np.int64))
    return spaces.Dict({"utterance": words, "selection": spaces.Discrete(vocabulary.domain.max_selections)})


def observation_space(vocabulary: Vocabulary, rules: Rules) -> spaces.Dict:
    """Return the observation space of a side; `NegotiationEnv` explains the keys."""
    domain = vocabulary.domain
    return spaces.Dict(
        {
            "context": spaces.Box(0, domain.largest, (2 * len(domain.items),), np.int64),
            "tokens": spaces.Box(0, len(vocabulary) - 1, (rules.max_tokens,), np.int64),
            "num_tokens": spaces.Discrete(rules.max_tokens + 1),
            "phase": spaces.Discrete(OVER + 1),
            "selections": spaces.MultiBinary(domain.max_selections),
        }
    )


def observe(game: NegotiationGame, side: int) -> dict[str, Any]:
    """Return a side's observation of the first dialogue, as copies."""
    legal = np.zeros(game.domain.max_selections, dtype=np.int8)
    legal[: len(game.scenarios[0].selections)] = 1
    return {
        "context": game.contexts[side, 0].copy(),
        "tokens": game.tokens[side, 0].copy(),
        "num_tokens": game.num_tokens[0],
        "phase": np.int64(game.phase[0]),
        "selections": legal,
    }


def speak_action(vocabulary: Vocabulary, rules: Rules, words: Sequence[str]) -> dict[str, Any]:
    """Return the action that says `words`; end them with `<eos>`, or pass `["<selection>"]` to end the talk.

    Raises:
        ScenarioError: there are more words than `rules.max_words`.
    """
    if len(words) > rules.max_words:
        raise ScenarioError("the utterance is too long", got=f"{len(words)} tokens", fix=f"say at most {rules.max_words}")
    utterance = np.full(rules.max_words, PAD_ID, dtype=np.int64)
    utterance[: len(words)] = vocabulary.encode(words)
    return {"utterance": utterance, "selection": np.int64(0)}


def choose_action(rules: Rules, selection: int) -> dict[str, Any]:
    """Return the action that chooses the selection of that index."""
    return {"utterance": np.full(rules.max_words, PAD_ID, dtype=np.int64), "selection": np.int64(selection)}


def act(game: NegotiationGame, side: int, action: Mapping[str, Any], space: spaces.Dict) -> None:
    """Apply the action of the side to act in the first dialogue; the phase decides which part of it counts.

    Raises:
        ScenarioError: the action lies outside the action space.
    """
    if not space.contains(action):
        raise ScenarioError("the action lies outside the action space", got=repr(action), fix="see env.action_space")
    if game.phase[0] == SELECT:
        game.choose(side, ROW, np.array([action["selection"]], dtype=np.int64))
        return
    tokens = np.array(action["utterance"], dtype=np.int64)
    length = np.flatnonzero(tokens != PAD_ID).max(initial=-1) + 1
    game.say(ROW, Utterances(tokens[None], np.array([length], dtype=np.int64)))


def side_reward(game: NegotiationGame, side: int, kind: str) -> float:
    """Return a side's reward at the end of the first dialogue; 0 before the end."""
    points, other_points = game.points[0, side], game.points[0, 1 - side]
    return float(points if kind == "points" else points - other_points)


def side_to_act(game: NegotiationGame) -> int | None:
    """Return the side to speak or choose in the first dialogue, side 0 to choose first; None at the end."""
    return next((side for side in (0, 1) if game.rows_to_speak(side).size or game.rows_to_choose(side).size), None)


def outcome(game: NegotiationGame) -> dict[str, Any]:
    """Return the outcome of the first dialogue; pairs are by side."""
    return {
        "agreed": bool(game.agreed[0]),
        "points": tuple(game.points[0].tolist()),
        "forced": bool(game.forced[0]),
        "num_illegal": tuple(game.num_illegal[0].tolist()),
        "transcript": game.transcript(0),
    }


def draw_scenario(rng: np.random.Generator, scenarios: Sequence[Scenario] | None, domain: Domain) -> Scenario:
    """Return a random scenario of the list, or any legal one of the game if there is no list."""
    return domain.random_scenario(rng) if scenarios is None else scenarios[int(rng.integers(len(scenarios)))]


def check_arguments(owner: str, reward_kind: str, scenarios: Sequence[Scenario] | None) -> None:
    """Raise a `ConfigError` for an unknown reward or an empty list of scenarios; `owner` is the class."""
    if reward_kind not in REWARDS:
        hint = nearest(str(reward_kind), REWARDS)
        raise ConfigError(f"unknown reward{hint}", where=owner, got=repr(reward_kind), fix=f"one of {', '.join(REWARDS)}")
    if scenarios is not None and not len(scenarios):
        raise ConfigError("the list of scenarios is empty", where=owner, fix="give one at least, or None for random ones")


class OneSide(TextRenderedEnv[SeenT, ActT]):
    """One side of the game against a partner; subclasses define observations and actions.

    Args: as of `NegotiationEnv`.
    """

    option = ("scenario", Scenario)

    def __init__(
        self,
        vocabulary: Vocabulary | None = None,
        partner: object = "scripted",
        scenarios: Sequence[Scenario] | None = None,
        reward: str = "points",
        rules: Rules | None = None,
        side: int = 0,
        render_mode: str | None = None,
    ) -> None:
        owner = type(self).__name__
        check_arguments(owner, reward, scenarios)
        if side not in (0, 1):
            raise ConfigError("there is no such side", where=owner, got=repr(side), fix="side 0 or 1")
        super().__init__(render_mode)
        self.partner = as_agent(partner, vocabulary)
        self.vocabulary = self.partner.vocabulary if vocabulary is None else vocabulary
        require_same_game(self.partner, self.vocabulary)
        self.scenarios = None if scenarios is None else tuple(scenarios)
        self.reward = reward
        self.rules = rules or Rules()
        self.side = side
        self.observation_space, self.action_space = self._spaces()
        self._game: NegotiationGame | None = None
        self._ended = False

    def _begin(self, given: Scenario | None) -> tuple[SeenT, dict[str, Any]]:
        dialogue_seed = int(self.np_random.integers(2**63))
        scenario = given or draw_scenario(self.np_random, self.scenarios, self.vocabulary.domain)
        words = (self.vocabulary, self.partner.vocabulary)
        self._game = NegotiationGame([scenario], [dialogue_seed], words if self.side == 0 else words[::-1], self.rules)
        self._session = self.partner.join(self._game.view(1 - self.side))
        self._ended = False
        self._let_partner_act()
        return self._seen(self._game), {}

    def step(self, action: ActT) -> tuple[SeenT, float, bool, bool, dict[str, Any]]:
        """Speak or choose, and let the partner act until it is this side's turn.

        Args:
            action: see the class.

        Raises:
            ScenarioError: no dialogue is open, or the action lies outside the action space.
        """
        game = self._game
        if game is None or self._ended:
            raise ScenarioError("no dialogue is going on", where=f"step of {type(self).__name__}", fix="call reset() first")
        if game.phase[0] != OVER:
            self._act(game, action)
            self._let_partner_act()
        self._ended = bool(game.phase[0] == OVER)
        self._show()
        info = outcome(game) if self._ended else {}
        return self._seen(game), side_reward(game, self.side, self.reward), self._ended, False, info

    def _text(self) -> str:
        assert self._game is not None
        return render_dialogue(self._game, 0, self.side)

    @abstractmethod
    def _spaces(self) -> tuple[spaces.Space[SeenT], spaces.Space[ActT]]:
        """Return the observation and action spaces."""

    @abstractmethod
    def _seen(self, game: NegotiationGame) -> SeenT:
        """Return the observation of this side."""

    @abstractmethod
    def _act(self, game: NegotiationGame, action: ActT) -> None:
        """Apply this side's action."""

    def _let_partner_act(self) -> None:
        game, side = self._game, 1 - self.side
        assert game is not None
        rows = game.rows_to_speak(side)
        if rows.size:
            game.say(rows, self._session.speak(rows))
        rows = game.rows_to_choose(side)
        if rows.size:
            game.choose(side, rows, self._session.choose(rows))


class NegotiationEnv(OneSide[dict[str, Any], dict[str, Any]]):
    """Divide books, hats and balls with a partner by talking (Deal or No Deal).

    ## Description
    Two sides see the same few items and value them differently. They talk by turns until one of them says exactly
    `<selection>`; then each chooses, unseen by the other, who gets what. If the two choices fit together, each side
    earns the value of its items; otherwise nobody earns anything. You play one side, `partner` the other.

    ## Action Space
    A `Dict`; the phase of the dialogue decides which part of it is read, the other is ignored:

    | key | space | meaning | read in |
    |---|---|---|---|
    | utterance | `MultiDiscrete` (max_words,) | token ids of your words, closed by `<eos>` and padded with `<pad>` | `SPEAK` |
    | selection | `Discrete(38)` | index of a legal selection; one beyond them counts as no agreement | `SELECT` |

    `speak_action` and `choose_action` of this module write such actions. An utterance without `<eos>` is closed for
    you; words that nobody may say (`<pad>` between words, `YOU:`, `THEM:`) are dropped and counted.

    ## Observation Space
    A `Dict`, always from your own perspective:

    | key | space | meaning |
    |---|---|---|
    | context | `Box` int64 (6,) in 0..10 | number of books and your points for one, the same for hats and balls |
    | tokens | `Box` int64 (max_tokens,) | the dialogue so far, your turns after `YOU:`, padded with `<pad>` |
    | num_tokens | `Discrete(max_tokens + 1)` | how many of `tokens` have been said |
    | phase | `Discrete(3)` | 0 `SPEAK`, 1 `SELECT`, 2 `OVER` |
    | selections | `MultiBinary(38)` | 1 at the index of every legal selection of this scenario, in every phase |

    ## Starting State
    A scenario, drawn afresh, and a fair coin that decides who speaks first. If it is the partner, its first utterance
    has already been said. `reset(options={"scenario": Scenario(...)})` sets the scenario. One seed gives one episode.

    ## Reward
    0 until the end. Then `"points"`: your points, 0..10; or `"advantage"`: yours less the partner's, -10..10.

    ## Episode End
    Termination: both have chosen; under `Rules(complementary=True)`, side 1 has (side 0 gets the rest). Truncation:
    never, because the limits of `Rules` belong to the game: past them it says `<selection>` for the side to move.
    Should the partner end a complementary dialogue before your first word, `reset` shows the phase `OVER`, and your
    first action, whatever it is, only collects the reward.

    ## Information
    Empty until the end. Then `agreed`, `points`, `forced` (a limit ended the dialogue), `num_illegal` (dropped tokens)
    and `transcript` (turns of side and words); pairs are by side.

    ## Arguments
    * `vocabulary`: your words; the partner's when not given. Each side hears `<unk>` for a word that its own lacks.
    * `partner`: an agent's name: a run or checkpoint folder, `scripted` (the default), `path/file.py:Name`, a chat model;
      or the agent itself: an object or a class with `join` (`as_agent`).
    * `scenarios`: the list that scenarios are drawn from; None draws from all legal ones.
    * `reward`: `"points"` or `"advantage"`.
    * `rules`: limits and options of the game.
    * `side`: 0 or 1, yours.
    * `render_mode`: `"ansi"` returns text from `render()`; `"human"` writes it to standard error after every move.

    ## References
    * Lewis, Yarats, Dauphin, Parikh, Batra (2017). Deal or No Deal? End-to-End Learning for Negotiation Dialogues.
    * Cheng, Wei, Hsieh (2019). Evaluating and Enhancing the Robustness of Dialogue Systems, section 4 (complementary).

    ## Version History
    * v1: first version.
    """

    def _spaces(self) -> tuple[spaces.Dict, spaces.Dict]:
        return observation_space(self.vocabulary, self.rules), action_space(self.vocabulary, self.rules)

    def _seen(self, game: NegotiationGame) -> dict[str, Any]:
        return observe(game, self.side)

    def _act(self, game: NegotiationGame, action: dict[str, Any]) -> None:
        act(game, self.side, action, self.action_space)  # type: ignore[arg-type]  # it is the one above


NO_DEAL = "no deal"


class NegotiationTextEnv(OneSide[str, str]):
    """Divide books, hats and balls with a partner by writing.

    ## Description
    The game of `parley/Negotiation-v1`, read and written as text. Any word can be said: a partner that does not know it
    hears `<unk>`, and one that reads text reads it. You play one side, `partner` the other.

    ## Action Space
    `Text` of up to 2,048 characters. While the talk goes on it is what you say; `<selection>` alone ends the talk. Then
    it is what you choose for yourself: the number of each item (`1 0 2`, or `2 balls and 1 book`), or `no deal`;
    anything else counts as no agreement. A text beyond `max_words` words is cut.

    ## Observation Space
    `Text` of up to 16,384 characters: the items with their counts and your points for one of each, who has said what,
    what you may do now, and in the end who chose and earned what. Characters beyond ASCII are shown as `?`; of a longer
    text the end is shown.

    ## Starting State
    A scenario, drawn afresh, and a fair coin that decides who speaks first. If it is the partner, its first utterance
    has already been said. `reset(options={"scenario": Scenario(...)})` sets the scenario. One seed gives one episode.

    ## Reward
    0 until the end. Then `"points"`: your points, 0..10; or `"advantage"`: yours less the partner's, -10..10.

    ## Episode End
    Termination: both have chosen; under `Rules(complementary=True)`, side 1 has (side 0 gets the rest). Truncation:
    never, because the limits of `Rules` belong to the game. Should the partner end a complementary dialogue before your
    first word, your first action only collects the reward.

    ## Information
    Empty until the end. Then `agreed`, `points`, `forced` (a limit ended the dialogue), `num_illegal` (dropped words)
    and `transcript` (turns of side and words); pairs are by side.

    ## Arguments
    * `vocabulary`: names the game by its words; the partner's when not given.
    * `partner`, `scenarios`, `reward`, `rules`, `side`, `render_mode`: as in `parley/Negotiation-v1`.

    ## References
    * Lewis, Yarats, Dauphin, Parikh, Batra (2017). Deal or No Deal? End-to-End Learning for Negotiation Dialogues.

    ## Version History
    * v1: first version.
    """

    def _spaces(self) -> tuple[spaces.Text, spaces.Text]:
        return text_spaces()

    def _seen(self, game: NegotiationGame) -> str:
        domain, counts = game.domain, game.scenarios[0].counts
        lines = [render_dialogue(game, 0, self.side)]
        if game.phase[0] == SPEAK:
            lines.append("say something, or <selection> to end the talk")
        elif game.phase[0] == SELECT:
            lines.append(f"choose what you get: {domain.answer_form(counts)}; or {NO_DEAL}")
        return shown_text("\n\n".join(lines))

    def _act(self, game: NegotiationGame, action: str) -> None:
        if not isinstance(action, str):
            raise ScenarioError("an action is a text", where="step of NegotiationTextEnv", got=repr(action)[:80])
        if game.phase[0] == SPEAK:
            game.say(ROW, Utterances.of([game.view(self.side).encode(action)]))
        else:
            game.choose(self.side, ROW, np.array([self._chosen(game, action.strip().lower())], dtype=np.int64))

    def _chosen(self, game: NegotiationGame, text: str) -> int:
        """Return an index into the legal selections; one past the end if the text names none."""
        domain, scenario = game.domain, game.scenarios[0]
        if text == NO_DEAL:
            return scenario.selections.no_agreement
        named = [re.search(rf"([0-9]+) +{re.escape(item)}s?\b", text) for item in domain.items]
        if any(named):  # in any order; items not named go to the partner
            text = " ".join(match.group(1) if match else "0" for match in named)
        read = domain.read_selection(scenario.counts, text)
        return len(scenario.selections) if read is None else read
