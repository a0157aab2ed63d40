"""The verdicts of all chapters: one sentence of at most 25 words, and a number with its interval."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest

from parley.engine.chat.metrics import ENDINGS as CHAT_ENDINGS
from parley.engine.chat.metrics import GAINS as CHAT_GAINS
from parley.engine.chat.metrics import USED
from parley.engine.chat.verbs.minmax import MINMAX_CHAT
from parley.engine.chat.verbs.negotiator import CAMPAIGN as NEGOTIATORS
from parley.engine.chat.verbs.negotiator import MINMAX_CHAT_NEGOTIATOR
from parley.engine.core.page.content import Report, Run
from parley.engine.core.page.page import load_chapters, render
from parley.engine.core.stats.known import EXPLOITABILITY
from parley.engine.core.stats.statistics import Estimate
from parley.engine.generation.metrics.adversarial import ADVERSUC
from parley.engine.generation.verbs.adversarial import SYSTEMS, VERDICTS, judge_specs
from parley.engine.generation.verbs.adversarial_config import AdversarialConfig
from parley.engine.mutual_friends.metrics.lying import ENDINGS, GAINS
from parley.engine.negotiation.metrics.campaign import SINGLE, VALUE
from parley.engine.perturb.metrics.audit import CONTROL as RANDOM_WORDS
from parley.engine.perturb.metrics.audit import RATIO
from parley.engine.ranking.metrics.campaign import GAIN, GAIN_BEYOND_CONTROL, HELD, RANKERS
from parley.engine.ranking.metrics.ranking import CLEAN
from parley.engine.ranking.verbs.hardened import SEARCHED, TRAIN_HARDENED_RANKER, metric_name
from parley.engine.scan.metrics import BREACH, UNDECIDED
from parley.engine.scan.verbs import LIMITS
from parley.engine.secret.metrics import SCORE
from parley.engine.secret.verbs.evaluate import EVALUATE_SECRET
from parley.engine.triggers.metrics.transfer import CONTROL, LESS_THAN_CONTROL, START
from tests.engine.core.page.pages import assert_brief, chapter_of, run_of, words
from tests.engine.core.page.sweeps.test_trials import section as sweep
from tests.engine.generation.page.test_training import table as generators
from tests.engine.mutual_friends.page.test_chats import made as friends
from tests.engine.negotiation.page.dialogues import report, searched
from tests.engine.negotiation.page.test_verdict import campaign
from tests.engine.perturb.page.test_examples import section as robustness
from tests.engine.ranking.page.test_rankings import made as rankers
from tests.engine.ranking.page.test_searches import made as ranker_attacks
from tests.engine.triggers.page.test_pairs import section as triggers

SHARE = Estimate(0.5, 0.4, 0.6, 100)
LONG = "a run whose title has as many words as a title of a run of several models and of several corpora may have"


def measured(job: str, *names: str, **summary: object) -> Run:
    return run_of(job, metrics=dict.fromkeys(names, SHARE), heading=LONG, **summary)


def judges() -> Run:
    config = AdversarialConfig()
    names = [f"{ADVERSUC}.{judge}.machine" for judge in judge_specs(config, ["machine"]).judges]
    outcome = f"machine: {'these judges are wrong more often than coins ' * 4}(AdverSuc 0.6)."
    return measured("evaluate-adversarial", *names, config=config, **{SYSTEMS: ["machine"], VERDICTS: [outcome]})


def typed() -> Run:
    kinds = ("found", "random", "empty")
    names = [f"{kind}.held_out.verified" for kind in kinds]
    return measured("search-universal", *names, config={"success": {"by": "prefix"}, "hugging_face": {}})


def recipe() -> Run:
    says = "more than a tenth of the sentences is brought out by an input that is as likely as usual ones here (global-general)"
    claim = {"says": says, "table": "2", "outcome": "not reproduced", "why": "", "figures": {"t.row.share": SHARE.to_json()}}
    layout = {"key": "t", "title": "Table 2", "rows": [{"key": "row", "label": "us", "published": {}}]}
    layout["columns"] = [{"key": "share", "heading": "share", "form": "share"}]
    second = {**claim, "says": "it holds", "table": "", "outcome": "reproduced"}
    return measured("compare", "t.row.share", tables=[layout], claims={"claims": [claim, second]})


RUNS: Mapping[str, Callable[[], Sequence[Run]]] = {
    "recipe": lambda: [recipe()],
    "scan": lambda: [
        measured("scan", BREACH, f"{BREACH}.none", f"{BREACH}.random-words", UNDECIDED, **{LIMITS: [{"state": "undecided"}]})
    ],
    "hardened-negotiators": lambda: [campaign(-0.5)],
    "tactics": lambda: [measured("attack-tactic", "refined.over_none", "refined.over_gains").part("all", "run", rows=[])],
    "negotiation": lambda: [*report().found["negotiation"], searched()],
    "populations": lambda: [measured("evaluate-population", VALUE, SINGLE)],
    "hardened-models": lambda: [
        measured(
            "minmax-triggers",
            *(f"{model}.{EXPLOITABILITY}" for model in (START, "round-1", CONTROL)),
            f"round-1.{LESS_THAN_CONTROL}",
        )
    ],
    "triggers": lambda: [triggers(), triggers(targets="normal"), triggers(targets="a/list of sentences.txt")],
    "robustness": lambda: [robustness()],
    "audits": lambda: [measured("perturb-audit", f"{RATIO}.{RANDOM_WORDS}", f"{RATIO}.random-swap")],
    "hardened-rankers": lambda: [
        measured("minmax-ranking", *(f"{HELD}{ending}" for ending in RANKERS.endings.values()), GAIN, GAIN_BEYOND_CONTROL)
    ],
    "hardened-encoders": lambda: [
        measured(
            TRAIN_HARDENED_RANKER.name,
            *(metric_name(of, ending) for of in (SEARCHED, CLEAN) for ending in ("", "before", "control", "gain", "beyond")),
        )
    ],
    "ranking": lambda: [rankers()],
    "ranker-attacks": lambda: [ranker_attacks()],
    "generators": lambda: [generators()],
    "judges": lambda: [judges()],
    "hardened-friends": lambda: [
        measured("minmax-friends", *(f"{EXPLOITABILITY}{ending}" for ending in ENDINGS.values()), *GAINS.values())
    ],
    "chat-minmax": lambda: [
        measured(
            MINMAX_CHAT.name,
            *(f"{EXPLOITABILITY}{ending}" for ending in CHAT_ENDINGS.values()),
            *CHAT_GAINS.values(),
            USED,
        )
    ],
    "chat-negotiators": lambda: [
        measured(MINMAX_CHAT_NEGOTIATOR.name, *(name for name, metric in NEGOTIATORS.items() if metric.main))
    ],
    "collaboration": lambda: [friends()],
    "secret": lambda: [measured(EVALUATE_SECRET.name, f"{SCORE}.{LONG.replace(' ', '-')}", f"{SCORE}.naive")],
    "sweeps": lambda: [sweep(again=SHARE)],
    "training": lambda: [measured("train-negotiator", "validation_loss")],
}
"""Runs of every chapter that has a verdict."""
WITHOUT = {"measurements"}
"""The chapter of runs whose metric that matters is unknown."""


def test_every_chapter_is_walked_over() -> None:
    assert {chapter.name for chapter in load_chapters()} == {*RUNS, *WITHOUT}


@pytest.mark.parametrize("name", RUNS)
def test_a_verdict_has_at_most_25_words_and_one_number_in_large_type(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chapter, runs = chapter_of(name), RUNS[name]()
    verdict = chapter.verdict(runs)
    assert verdict is not None
    assert_brief(verdict)
    monkeypatch.setattr(type(chapter), "tables", lambda self, run: {})
    for silent in ("notes", "figures", "shared_figures", "items", "shared_tables"):
        monkeypatch.setattr(type(chapter), silent, lambda self, run: {})
    monkeypatch.setattr(type(chapter), "curves", ())
    page = render(Report(title="t", found={name: runs}), [chapter])
    assert page.count('class="large"') == page.count('class="sentence"') == 1
    assert verdict.sentence.replace("\N{NO-BREAK SPACE}", " ") in words(page)


def test_inputs_typed_behind_held_out_prompts_are_told_briefly_too() -> None:
    verdict = chapter_of("triggers").verdict([typed()])
    assert verdict is not None
    assert_brief(verdict)


def test_a_recipe_is_judged_by_its_first_claim_and_tells_of_the_others() -> None:
    verdict = chapter_of("recipe").verdict([recipe()])
    assert verdict is not None
    assert verdict.sentence.endswith(": not reproduced.")
    assert (verdict.number, verdict.label) == (SHARE, "us, share: Table 2")
    # What nobody published is not reproduced: it holds.
    assert verdict.details == ["It holds: holds."]
    # Its stages have verdicts of a higher rank.
    assert verdict.rank < 0
