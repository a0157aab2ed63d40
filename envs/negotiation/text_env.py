"""`parley/NegotiationText-v1`: one side of the negotiation game in plain text, for people, language models and scripts."""

from __future__ import annotations

import re
import string

import numpy as np
from gymnasium import spaces

from parley.envs.core.errors import ScenarioError
from parley.envs.core.play import Utterances
from parley.envs.core.visible import visible
from parley.envs.negotiation.env import OneSide
from parley.envs.negotiation.game import SELECT, SPEAK, NegotiationGame
from parley.envs.negotiation.render import render_dialogue

CHARACTERS = string.ascii_letters + string.digits + string.punctuation + " \n"
LONGEST_SEEN, LONGEST_SAID = 16_384, 2_048
NO_DEAL = "no deal"
_ROW = np.zeros(1, dtype=np.int64)


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
        seen, said = (spaces.Text(longest, min_length=0, charset=CHARACTERS) for longest in (LONGEST_SEEN, LONGEST_SAID))
        return seen, said

    def _seen(self, game: NegotiationGame) -> str:
        domain, counts = game.domain, game.scenarios[0].counts
        lines = [render_dialogue(game, 0, self.side)]
        if game.phase[0] == SPEAK:
            lines.append("say something, or <selection> to end the talk")
        elif game.phase[0] == SELECT:
            lines.append(f"choose what you get: {domain.answer_form(counts)}; or {NO_DEAL}")
        text = visible("\n\n".join(lines), keep="\n").encode("ascii", "replace").decode()
        return text[-LONGEST_SEEN:]

    def _act(self, game: NegotiationGame, action: str) -> None:
        if not isinstance(action, str):
            raise ScenarioError("an action is a text", where="step of NegotiationTextEnv", got=repr(action)[:80])
        if game.phase[0] == SPEAK:
            game.say(_ROW, Utterances.of([game.view(self.side).encode(action)]))
        else:
            game.choose(self.side, _ROW, np.array([self._chosen(game, action.strip().lower())], dtype=np.int64))

    def _chosen(self, game: NegotiationGame, text: str) -> int:
        """An index into the legal selections; one beyond them for a text that names none."""
        domain, scenario = game.domain, game.scenarios[0]
        if text == NO_DEAL:
            return scenario.selections.no_agreement
        named = [re.search(rf"([0-9]+) +{re.escape(item)}s?\b", text) for item in domain.items]
        if any(named):  # in any order; what is not named is left to the partner
            text = " ".join(found.group(1) if found else "0" for found in named)
        read = domain.read_selection(scenario.counts, text)
        return len(scenario.selections) if read is None else read
