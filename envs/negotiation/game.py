"""The negotiation game: the one state machine behind the Gymnasium environment, RLlib training and evaluation.

It holds B dialogues side by side as arrays; a single environment is the case B = 1. A dialogue is: utterances by
turns until one of them is exactly `<selection>`, then both sides choose, then points (Lewis et al. 2017, section 2).

Shapes: B dialogues, T = `Rules.max_tokens`, n = number of rows passed, L = width of an utterance array, K items and H tokens
of a selection (`domain.py`).

Rules and where they come from:
  * An utterance ends at its first `<eos>` or `<selection>`, or after `max_words` tokens (an `<eos>` of nobody's follows).
  * `<selection>` after other words ends the utterance, not the dialogue (released code of Lewis et al.).
  * `<pad>`, `YOU:` and `THEM:` inside an utterance are dropped and counted: they would let a speaker forge the
    transcript. An utterance with nothing left is a bare `<eos>`. `<unk>` is kept (people use unknown words).
  * After `max_turns` utterances, or when fewer than `max_words` + 4 tokens of room are left, `<selection>` is said
    for the side to move (released attack code: after 20 utterances). Forced words belong to no author.
  * `complementary`: only side 1 chooses and side 0 is given the complement (Cheng et al. 2019, section 3).
    # Paper: agreement prints as 100 %. Ours: a refusal by side 1 counts as no agreement, because nobody earns anything.

A dialogue is text: each side reads and speaks it in ids of its own vocabulary (`spoken.py`). Sides that share one, and say no
other word, read and write the same arrays.

A dialogue as plain text, for people: the scenario, who said what, what was chosen, who earned what.

Pure: the same game gives the same text. Environments, reports and the command line share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from parley.envs.core.config import Configuration, PositiveInt, check
from parley.envs.core.errors import ConfigError
from parley.envs.core.play import Player, Utterances, play_sessions
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.domain import (
    EOS_ID,
    PAD_ID,
    SELECTION_ID,
    Domain,
    Scenario,
    SpokenWords,
    Vocabulary,
    is_pareto_optimal,
    points,
    split_text,
)

SPEAK, SELECT, OVER = range(3)
NOBODY = -1


@dataclass(frozen=True, kw_only=True)
class Rules(Configuration):
    """Limits and options of the game."""

    max_turns: PositiveInt = 20
    """Utterances after which `<selection>` is forced."""
    max_words: PositiveInt = 100
    """Tokens of one utterance, `<eos>` included."""
    max_tokens: int = 512
    """Tokens of one dialogue, speaker markers included; must leave room for two utterances."""
    complementary: bool = False
    """Side 1 alone chooses; side 0 is given the complement of its selection."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "max_tokens", self.max_tokens >= 2 * (self.max_words + 4), "at least 2 * (max_words + 4)")


class Agent(Player["SideView"], Protocol):
    """Anything that can negotiate: a trained model, a script, a person."""

    @property
    def vocabulary(self) -> Vocabulary:
        """The words in whose ids it reads and speaks."""


class NegotiationGame:
    """B negotiation dialogues.

    Args:
        scenarios: one scenario per dialogue.
        seeds: one 63-bit seed per dialogue; decides who speaks first and every random draw in it.
        vocabulary: in whose ids both sides read and speak; or that of side 0 and that of side 1.
        rules: limits and options.
        first_speakers: (B,) side 0 or 1 per dialogue; a fair coin from the dialogue's seed when not given.

    Raises:
        ConfigError: a scenario is of another game than the vocabulary.
    """

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        seeds: Sequence[int],
        vocabulary: Vocabulary | tuple[Vocabulary, Vocabulary],
        rules: Rules | None = None,
        first_speakers: Sequence[int] | None = None,
    ) -> None:
        self.scenarios = list(scenarios)
        # Keys of seed streams carry their type, so a numpy integer would name other streams than the same int.
        self.seeds = [int(seed) for seed in seeds]
        self.vocabularies = vocabulary if isinstance(vocabulary, tuple) else (vocabulary, vocabulary)
        self.vocabulary = self.vocabularies[0]
        """Of side 0; the game's ids begin with it."""
        self.domain: Domain = self.vocabulary.domain
        """What is negotiated about."""
        for words in self.vocabularies:
            require_game(words.game, self.scenarios)
        self.rules = rules or Rules()
        size, width = len(self.scenarios), self.rules.max_tokens
        assert len(self.seeds) == size, "one seed per dialogue"
        self.uniforms = np.empty((size, width), dtype=np.float64)
        coins = np.empty(size, dtype=np.int64)
        for row, seed in enumerate(self.seeds):
            generator = stream(seed, "dialogue")
            coins[row] = generator.integers(2)
            generator.random(out=self.uniforms[row])
        self.first_speakers = coins if first_speakers is None else np.array(first_speakers, dtype=np.int64)
        self.contexts = np.array([[s.context(0), s.context(1)] for s in self.scenarios], dtype=np.int64).transpose(1, 0, 2)
        self.tokens = np.full((2, size, width), PAD_ID, dtype=np.int64)
        """Each side's view of the dialogue (2, B, T) in ids of its own: the same words, `YOU:` and `THEM:` exchanged."""
        self._spoken: SpokenWords | None = None
        """The game's words, once there are others than those of one vocabulary that both sides have."""
        self._said = self.tokens[0]
        """From then on side 0's view in the game's ids (B, T)."""
        if self.vocabularies[0].digest != self.vocabularies[1].digest:
            self._open()
        self.authors = np.full((size, width), NOBODY, dtype=np.int8)
        """Who wrote each token (B, T): side 0, side 1, or nobody (markers, forced words, an `<eos>` that the game added)."""
        self.num_tokens = np.zeros(size, dtype=np.int64)
        self.num_turns = np.zeros(size, dtype=np.int64)
        self.phase = np.full(size, SPEAK, dtype=np.int8)
        self.to_move = self.first_speakers.copy()
        """Whose utterance is next (B,); the side that ended the dialogue once it is no longer `SPEAK`."""
        self.forced = np.zeros(size, dtype=bool)
        """Dialogues (B,) in which a limit forced the `<selection>`."""
        self.selections = np.full((size, 2), -1, dtype=np.int64)
        self.num_illegal = np.zeros((size, 2), dtype=np.int64)
        """Tokens dropped as illegal, by side (B, 2)."""
        self.illegal_selections = np.zeros((size, 2), dtype=bool)
        """Whether a side chose out of range (B, 2), which counts as no agreement."""
        self.agreed = np.zeros(size, dtype=bool)
        self.points = np.zeros((size, 2), dtype=np.int64)

    def __len__(self) -> int:
        return len(self.scenarios)

    def rows_to_speak(self, side: int) -> np.ndarray:
        """Dialogues in which it is that side's turn to speak."""
        return np.flatnonzero((self.phase == SPEAK) & (self.to_move == side))

    def rows_to_choose(self, side: int) -> np.ndarray:
        """Dialogues in which that side has yet to choose."""
        if side == 0 and self.rules.complementary:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero((self.phase == SELECT) & (self.selections[:, side] < 0))

    def view(self, side: int) -> SideView:
        """What that side may see."""
        return SideView(self, side)

    def say(self, rows: np.ndarray, utterances: Utterances) -> None:
        """The side to move says its utterance in each of the dialogues `rows` (distinct, all in phase `SPEAK`)."""
        assert (self.phase[rows] == SPEAK).all(), "only open dialogues take utterances"
        if self._spoken is not None:
            utterances = self._in_game_ids(self._spoken, self.to_move[rows], utterances)
        tokens, lengths, closed = self._legal(rows, utterances)
        speakers = self.to_move[rows]
        self._append(rows, speakers, tokens, lengths, speakers)
        self.authors[rows[closed], self.num_tokens[rows[closed]] - 1] = NOBODY
        self.num_turns[rows] += 1
        ended = (lengths == 1) & (tokens[:, 0] == SELECTION_ID)
        self.phase[rows[ended]] = SELECT
        going = rows[~ended]
        self.to_move[going] = 1 - self.to_move[going]
        room = self.rules.max_tokens - self.num_tokens[going]
        cut = going[(self.num_turns[going] >= self.rules.max_turns) | (room < self.rules.max_words + 4)]
        if cut.size:
            forced = np.full((cut.size, 1), SELECTION_ID, dtype=np.int64)
            nobody = np.full(cut.size, NOBODY)
            self._append(cut, self.to_move[cut], forced, np.ones(cut.size, dtype=np.int64), nobody)
            self.num_turns[cut] += 1
            self.forced[cut] = True
            self.phase[cut] = SELECT

    def choose(self, side: int, rows: np.ndarray, selections: np.ndarray) -> None:
        """A side chooses; when all that must choose have done so, the dialogue is over and points are set.

        Args:
            side: 0 or 1; side 0 never chooses under the complementary rule.
            rows: dialogues (n,) in phase `SELECT`.
            selections: index (n,) into the scenario's legal selections; one out of range counts as no agreement.
        """
        assert (self.phase[rows] == SELECT).all(), "only ended dialogues take selections"
        for row, selection in zip(rows.tolist(), selections.tolist(), strict=True):
            choosable = self.scenarios[row].selections
            illegal = not 0 <= selection < len(choosable)
            self.illegal_selections[row, side] = illegal
            legal = choosable.no_agreement if illegal else selection
            self.selections[row, side] = legal
            if self.rules.complementary:
                self.selections[row, 0] = choosable.fits[legal]
            if (self.selections[row] >= 0).all():
                first, second = self.selections[row].tolist()
                self.agreed[row], self.points[row] = points(self.scenarios[row], (first, second))
                self.phase[row] = OVER

    def is_pareto(self, row: int) -> bool:
        """Return whether a dialogue's outcome is agreed and Pareto optimal."""
        first, second = self.points[row].tolist()
        return bool(self.agreed[row]) and is_pareto_optimal(self.scenarios[row], (first, second))

    def transcript(self, row: int) -> list[tuple[int, list[str]]]:
        """Return the dialogue as (side, words) turns, `<eos>` left out."""
        tokens = self.tokens[0] if self._spoken is None else self._said
        ids = tokens[row, : self.num_tokens[row]].tolist()
        words: Sequence[str] = self.vocabulary.words if self._spoken is None else self._spoken.words
        turns: list[tuple[int, list[str]]] = []
        for i in ids:
            if i in (self.vocabulary.you_id, self.vocabulary.them_id):
                turns.append((0 if i == self.vocabulary.you_id else 1, []))
            elif i != EOS_ID:
                turns[-1][1].append(words[i])
        return turns

    def tokens_in(self, vocabulary: Vocabulary, side: int) -> np.ndarray:
        """Return a side's view of the dialogues (B, T) in ids of any vocabulary, such as a judge's."""
        if vocabulary.digest == self.vocabularies[side].digest:
            return self.tokens[side]
        you, them = vocabulary.you_id, vocabulary.them_id
        read = vocabulary.encode(self._open().words)[self._said]
        return read if side == 0 else np.where(read == you, them, np.where(read == them, you, read))

    def utterance(self, side: int, words: Sequence[str]) -> list[int]:
        """Words as a side says them, in ids of its own, closed by `<eos>` unless they end the dialogue."""
        own = self.vocabularies[side]
        ids = own.encode(words).tolist()
        if any(word not in own.index for word in words):
            beyond = self._open().ids(words) + len(own)
            ids = [own.index.get(word, new) for word, new in zip(words, beyond.tolist(), strict=True)]
        return ids if ids == [SELECTION_ID] else [*ids, EOS_ID]

    def written(self, side: int, ids: Sequence[int]) -> list[str]:
        """What an utterance in a side's own ids reads, `<eos>` left out."""
        own = self.vocabularies[side].words
        beyond = self._open().words if any(i >= len(own) for i in ids) else ()
        return [own[i] if i < len(own) else beyond[i - len(own)] for i in ids if i != EOS_ID]

    def _open(self) -> SpokenWords:
        """From now on any word can be said."""
        if self._spoken is None:
            self._spoken = SpokenWords(self.vocabularies)
            self._said = self.tokens[0].copy()
        return self._spoken

    def _in_game_ids(self, spoken: SpokenWords, speakers: np.ndarray, utterances: Utterances) -> Utterances:
        tokens, lengths = utterances.tokens, utterances.lengths
        tokens = np.where(np.arange(tokens.shape[1]) < lengths[:, None], tokens, PAD_ID)
        for side in (0, 1):
            tokens[speakers == side] = spoken.spoken(side, tokens[speakers == side])
        return Utterances(tokens, lengths)

    def _legal(self, rows: np.ndarray, utterances: Utterances) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Utterances with illegal tokens dropped and exactly one end, and which of them (n,) the game had to close.

        The common clean case stays vectorised.
        """
        tokens, lengths = utterances.tokens[:, : self.rules.max_words], np.minimum(utterances.lengths, self.rules.max_words)
        columns = np.arange(tokens.shape[1])
        spoken = columns < lengths[:, None]
        is_end = (tokens == EOS_ID) | (tokens == SELECTION_ID)
        forbidden = spoken & np.isin(tokens, (PAD_ID, self.vocabulary.you_id, self.vocabulary.them_id))
        clean = (lengths > 0) & (spoken & is_end).sum(1).__eq__(1) & ~forbidden.any(1)
        clean &= is_end[np.arange(len(tokens)), np.maximum(lengths - 1, 0)]
        closed = np.zeros(len(tokens), dtype=bool)
        if clean.all():
            return tokens, lengths, closed
        tokens = np.concatenate([tokens, np.full((len(tokens), 1), PAD_ID, dtype=np.int64)], axis=1)
        lengths = lengths.copy()
        for i in np.flatnonzero(~clean).tolist():
            words = tokens[i, : lengths[i]].tolist()
            end = next((k for k, word in enumerate(words) if word in (EOS_ID, SELECTION_ID)), None)
            said = words[: len(words) if end is None else end + 1]
            kept = [word for word in said if word not in (PAD_ID, self.vocabulary.you_id, self.vocabulary.them_id)]
            self.num_illegal[rows[i], self.to_move[rows[i]]] += len(said) - len(kept)
            closed[i] = end is None
            if end is None:
                kept = [*kept[: self.rules.max_words], EOS_ID]
            tokens[i] = PAD_ID
            tokens[i, : len(kept)] = kept
            lengths[i] = len(kept)
        return tokens, lengths, closed

    def _append(
        self, rows: np.ndarray, speakers: np.ndarray, tokens: np.ndarray, lengths: np.ndarray, authors: np.ndarray
    ) -> None:
        start = self.num_tokens[rows]
        columns = np.arange(tokens.shape[1])
        at_n, at_l = np.nonzero(columns < lengths[:, None])
        positions = start[at_n] + 1 + at_l
        said = tokens[at_n, at_l]
        for side in (0, 1):
            markers = np.where(speakers == side, self.vocabulary.you_id, self.vocabulary.them_id)
            heard, marked = said, markers
            if self._spoken is not None:
                heard, marked = self._spoken.heard(side, said), self._spoken.heard(side, markers)
                if side == 0:
                    self._said[rows, start], self._said[rows[at_n], positions] = markers, said
            self.tokens[side, rows, start] = marked
            self.tokens[side, rows[at_n], positions] = heard
        self.authors[rows[at_n], positions] = authors[at_n]
        self.num_tokens[rows] = start + 1 + lengths


class SideView:
    """What one side of a batch of dialogues may see: its own context, the dialogue so far, its random draws.

    Args:
        game: the dialogues.
        side: 0 or 1.
    """

    def __init__(self, game: NegotiationGame, side: int) -> None:
        self._game, self.side = game, side
        self.vocabulary, self.rules, self.domain = game.vocabularies[side], game.rules, game.domain
        self.contexts = game.contexts[side]
        """(B, 2K) int64: count and own value of each item in turn."""
        self.tokens = game.tokens[side]
        """(B, T) int64: the dialogue so far in ids of `vocabulary`, own turns marked `YOU:`; it lacks what is `<unk>`."""
        self.num_tokens = game.num_tokens
        """(B,) int64: how many of `tokens` have been said."""
        self.num_turns = game.num_turns
        """(B,) int64: how many utterances have been said."""
        self.uniforms = game.uniforms
        """(B, T) float64 in [0, 1): the draw that decides the token at each position."""

    def __len__(self) -> int:
        return len(self._game)

    def turns(self, row: int) -> list[tuple[bool, str]]:
        """One dialogue so far as text: whether a turn is one's own, and its words, whatever one's vocabulary."""
        return [(side == self.side, " ".join(words)) for side, words in self._game.transcript(row)]

    def encode(self, text: str) -> list[int]:
        """Return a text as an utterance in ids of one's own, its end included; any word can be said."""
        return self._game.utterance(self.side, split_text(text, self.vocabulary))

    def written(self, ids: Sequence[int]) -> list[str]:
        """Return the words of an utterance in ids of one's own, its end left out."""
        return self._game.written(self.side, ids)

    def generator(self, row: int) -> np.random.Generator:
        """Random numbers for this side's next move in one dialogue, for agents that need more than one draw a token."""
        return stream(derive_seed(self._game.seeds[row], "side", self.side), int(self.num_tokens[row]))

    def opponent(self) -> SideView:
        """What the other side may see; only white-box attackers, who read their target's networks, look at it."""
        return SideView(self._game, 1 - self.side)

    def selections(self, row: int) -> np.ndarray:
        """Return the legal selections (m, H) of one dialogue as tokens of the domain, m <= `domain.max_selections`."""
        return self._game.scenarios[row].selections.table


def require_game(game: str, scenarios: Sequence[Scenario], who: str = "an agent", where: str | None = None) -> None:
    """Check that somebody plays the game that scenarios are of.

    Args:
        game: that is played.
        scenarios: of one game or of several.
        who: plays it, for messages.
        where: what named that agent.

    Raises:
        ConfigError: a scenario is of another game.
    """
    for other in {scenario.game for scenario in scenarios} - {game}:
        raise ConfigError(
            f"{who} plays another game than the scenarios are of",
            where=where,
            got=f"{game!r}, and scenarios of {other!r}",
            fix=f"name an agent that was trained on a corpus of {other!r}, or scenarios of {game!r} (parley list)",
        )


def play(game: NegotiationGame, agents: tuple[Agent, Agent]) -> NegotiationGame:
    """Play every dialogue of a game to its end.

    Args:
        game: fresh or half-played dialogues.
        agents: who is on side 0 and side 1.

    Returns:
        The same game, over.
    """
    return play_sessions(game, [agent.join(game.view(side)) for side, agent in enumerate(agents)])


_HIDDEN = "?"


def render_dialogue(game: NegotiationGame, row: int, perspective: int | None = None) -> str:
    """One dialogue as a person would read it.

    Args:
        game: any state of the game.
        row: which of its dialogues.
        perspective: the side (0 or 1) whose eyes to read with: it is "you", and until the dialogue is over the partner's
            values and both selections stay hidden. None names the sides "side 0" and "side 1" and hides nothing.

    Returns:
        Lines of text without a final newline; a table of items first, then the turns, then the outcome if there is one.
    """
    over = game.phase[row] == OVER
    sides = (0, 1) if perspective is None else (perspective, 1 - perspective)
    names = ["side 0", "side 1"] if perspective is None else ["you", "you"]
    if perspective is not None:
        names[1 - perspective] = "partner"
    shown = [perspective in (None, side) or bool(over) for side in (0, 1)]
    lines = [_table(game, row, sides, names, shown), ""]
    lines += [f"{names[side]}: {words}" for side, words in _turns(game, row)]
    if game.forced[row]:
        lines[-1] += " (forced by a limit of the game)"
    counts = game.scenarios[row].counts
    chosen = [side for side in sides if game.selections[row, side] >= 0 and (perspective is None or over)]
    if chosen:
        lines.append("")
    lines += [f"{names[side]} chose {game.domain.said(counts, int(game.selections[row, side]))}" for side in chosen]
    if over:
        earned = ", ".join(f"{names[side]} {game.points[row, side]}" for side in sides)
        lines.append(f"{'agreed' if game.agreed[row] else 'not agreed'}, points: {earned}")
    return "\n".join(lines)


def _table(game: NegotiationGame, row: int, sides: tuple[int, int], names: list[str], shown: list[bool]) -> str:
    scenario = game.scenarios[row]
    cells = [["item", "count", *(f"value to {names[side]}" for side in sides)]]
    for item, name in enumerate(game.domain.items):
        values = [str(scenario.values[side][item]) if shown[side] else _HIDDEN for side in sides]
        cells.append([name, str(scenario.counts[item]), *values])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join(
        "  ".join([first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))])
        for first, *rest in cells
    )


def _turns(game: NegotiationGame, row: int) -> list[tuple[int, str]]:
    return [(side, " ".join(words) or "(says nothing)") for side, words in game.transcript(row)]
