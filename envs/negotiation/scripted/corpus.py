"""Embedded corpora: dialogues of scripted agents in the line format of the published Deal-or-No-Deal files.

It makes every verb work on a fresh machine, offline. Dialogue i depends on the seed and i alone, so that a larger corpus
begins with the smaller one. Reading corpora is done in `envs/corpora`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from parley.envs.core.errors import ConfigError
from parley.envs.core.seeds import derive_seed, stream
from parley.envs.negotiation.domain import DISAGREE
from parley.envs.negotiation.game import Agent, NegotiationGame, SideView, play
from parley.envs.negotiation.scenario import Scenario
from parley.envs.negotiation.scripted.bargainers import BargainerSession, Style
from parley.envs.negotiation.scripted.phrasing import Phrasebook
from parley.envs.negotiation.scripted.wording import bargainer_vocabulary
from parley.envs.negotiation.vocabulary import Vocabulary

NUM_SELFPLAY = 500
"""Scenarios of the "selfplay" split."""
SPLITS_OF_TEN = ("train",) * 8 + ("val", "test")
"""The splits of each ten successive dialogues."""
_BATCH = 500


def embedded_corpus(num_dialogues: int, seed: int) -> dict[str, list[str]]:
    """Generates the corpus of Deal or No Deal; arguments and errors as those of `corpus_lines`."""
    phrasebook = Phrasebook(bargainer_vocabulary())
    return corpus_lines(num_dialogues, seed, "embedded", phrasebook.vocabulary, lambda styles: _Crowd(phrasebook, styles))


def corpus_lines(
    num_dialogues: int, seed: int, name: str, vocabulary: Vocabulary, crowd: Callable[[Sequence[Style]], Agent]
) -> dict[str, list[str]]:
    """Generates a corpus of the game that a vocabulary is of.

    Args:
        num_dialogues: dialogues of all splits together, at least 0; each gives two successive lines, one a side.
        seed: master seed, at least 0.
        name: of the streams that scenarios, styles and dialogues are drawn from.
        vocabulary: of the game.
        crowd: makes an agent with a style of its own in each dialogue.

    Returns:
        Lines without line ends under "train", "val" and "test", about 8 : 1 : 1, and under "selfplay": 500 fresh random
        scenarios, two lines "c0 v0 c1 v1 ..." each.

    Raises:
        ConfigError: a negative number.
    """
    if num_dialogues < 0 or seed < 0:
        got = f"{num_dialogues} dialogues, seed {seed}"
        raise ConfigError("the embedded corpus takes no negative numbers", got=got, fix="give numbers of at least 0")
    lines: dict[str, list[str]] = {"train": [], "val": [], "test": [], "selfplay": []}
    for start in range(0, num_dialogues, _BATCH):
        indices = range(start, min(start + _BATCH, num_dialogues))
        game = _play(indices, seed, name, vocabulary, crowd)
        for row, i in enumerate(indices):
            lines[SPLITS_OF_TEN[i % len(SPLITS_OF_TEN)]] += [dialogue_line(game, row, side) for side in (0, 1)]
    for i in range(NUM_SELFPLAY):
        scenario = vocabulary.domain.random_scenario(stream(seed, f"{name}-selfplay", i))
        lines["selfplay"] += [_numbers(scenario, side) for side in (0, 1)]
    return lines


def random_style(rng: np.random.Generator) -> Style:
    """A bargainer of the crowd that the corpus is drawn from: from soft and brief to hard and talkative."""
    greed, chattiness, yielding = rng.random(3).tolist()
    return Style(
        greed=0.25 + 0.42 * greed,
        patience=int(rng.integers(2, 6)),
        chattiness=chattiness,
        yielding=1.2 * yielding,
        slip=0.015,
    )


def dialogue_line(game: NegotiationGame, row: int, side: int) -> str:
    """One side's view of a finished dialogue as a line of the published format."""
    scenario, words, domain = game.scenarios[row], game.vocabulary.words, game.domain
    own, others = (int(game.selections[row, who]) for who in (side, 1 - side))
    fits = scenario.selections.fits[others] == own
    output = scenario.selections.table[own].tolist() if fits else domain.refusal_tokens(DISAGREE)
    said = " ".join(words[token] for token in game.tokens[side, row, : game.num_tokens[row]].tolist())
    chosen = " ".join(domain.tokens[token] for token in output)
    return (
        f"<input> {_numbers(scenario, side)} </input> <dialogue> {said} </dialogue> <output> {chosen} </output> "
        f"<partner_input> {_numbers(scenario, 1 - side)} </partner_input>"
    )


class _Crowd:
    """A different bargainer in every dialogue.

    Args:
        phrasebook: their wording.
        styles: one style per dialogue.
    """

    name = "crowd"

    def __init__(self, phrasebook: Phrasebook, styles: Sequence[Style]) -> None:
        self._phrasebook, self._styles = phrasebook, styles
        self.vocabulary: Vocabulary = phrasebook.vocabulary

    def join(self, view: SideView) -> BargainerSession:
        return BargainerSession(view, self._phrasebook, self._styles)


def _play(
    indices: range, seed: int, name: str, vocabulary: Vocabulary, crowd: Callable[[Sequence[Style]], Agent]
) -> NegotiationGame:
    scenarios: list[Scenario] = []
    styles: tuple[list[Style], list[Style]] = ([], [])
    for i in indices:
        rng = stream(seed, name, i)
        scenarios.append(vocabulary.domain.random_scenario(rng))
        for side in (0, 1):
            styles[side].append(random_style(rng))
    seeds = [derive_seed(seed, name, i) for i in indices]
    return play(NegotiationGame(scenarios, seeds, vocabulary), (crowd(styles[0]), crowd(styles[1])))


def _numbers(scenario: Scenario, side: int) -> str:
    return " ".join(map(str, scenario.context(side)))
