"""Small corpora written for the tests, in the published format."""

from __future__ import annotations

from pathlib import Path

from parley.envs.core.seeds import stream
from parley.envs.negotiation.corpora.catalogue import FileCorpus
from parley.envs.negotiation.corpora.dealornodeal import DialogueRecord, Turn, format_line
from parley.envs.negotiation.dealornodeal_rules import DISAGREE_ID, random_scenario, selection_table
from parley.envs.negotiation.domain import Scenario

SCENARIO = Scenario((1, 2, 3), ((1, 3, 1), (4, 0, 2)))
LINE = (
    "<input> 1 1 2 3 3 1 </input> <dialogue> YOU: both hats for me ? <eos> THEM: fine , the rest is mine <eos> "
    "YOU: <selection> </dialogue> <output> item0=0 item1=2 item2=0 item0=1 item1=0 item2=3 </output> "
    "<partner_input> 1 4 2 0 3 2 </partner_input>"
)
WORDS = ("hats", "books", "please", "no", "deal", ".", "two")


def record(seed: int) -> DialogueRecord:
    """A dialogue that is a function of the seed: a few turns of a few words, any outcome."""
    rng = stream(seed, "made up")
    scenario = random_scenario(rng)
    first = bool(rng.integers(2))
    num_turns = int(rng.integers(1, 5))
    turns = [
        Turn(first == (i % 2 == 0), tuple(WORDS[k] for k in rng.integers(len(WORDS), size=rng.integers(1, 6))))
        for i in range(num_turns)
    ]
    turns.append(Turn(first == (num_turns % 2 == 0), ("<selection>",)))
    legal = [*map(tuple, selection_table(scenario.counts).tolist()), (DISAGREE_ID,) * 6]
    return DialogueRecord(scenario, tuple(turns), legal[rng.integers(len(legal))])


def contents(num_train: int = 20, num_held_out: int = 5, num_selfplay: int = 3) -> dict[str, list[str]]:
    """The lines of the four files."""
    lines = [format_line(record(i)) for i in range(num_train + 2 * num_held_out)]
    played = [random_scenario(stream(i, "played")) for i in range(num_selfplay)]
    return {
        "train.txt": lines[:num_train],
        "val.txt": lines[num_train : num_train + num_held_out],
        "test.txt": lines[num_train + num_held_out :],
        "selfplay.txt": [" ".join(map(str, scenario.context(side))) for scenario in played for side in (0, 1)],
    }


def write(folder: Path, files: dict[str, list[str]]) -> None:
    """Puts the files into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in files.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines))


SOURCE = FileCorpus(
    name="made_up", summary="made up for the tests", licence="as Parley's own", obtain="nowhere.example", threshold=3
)
