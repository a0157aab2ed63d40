from __future__ import annotations

import pytest

from parley.envs.core.errors import DataError
from parley.envs.corpora.lines import FileLine
from parley.envs.negotiation.corpora.dealornodeal import parse_line, rebuild_train
from tests.envs.corpora.made_up import LINE

OWN = "1 1 2 3 3 1 YOU: both hats for me ? <eos> THEM: fine , the rest is mine <eos> YOU: <selection>"
PARTNER = "1 4 2 0 3 2 THEM: both hats for me ? <eos> YOU: fine , the rest is mine <eos> THEM: <selection>"
DEAL = f"{OWN} item0=0 item1=2 item2=0 <eos> reward=6 agree 1 4 2 0 3 2"


def outputs(*raw: str) -> list[str]:
    return [line.split("<output> ")[1].split(" </output>")[0] for line in rebuild_train(raw, [], "data.txt")]


def six(refusal: str) -> str:
    return " ".join([refusal] * 6)


def test_an_agreed_deal_holds_the_own_items_and_the_rest() -> None:
    assert rebuild_train([DEAL], [], "data.txt") == [LINE]


def test_a_flagged_disagreement_is_one_whatever_was_chosen() -> None:
    choices = (
        "item0=0 item1=2 item2=0 <eos> reward=6",
        "no agreement <eos> reward=no agreement",
        "disconnect <eos> reward=disconnect",
    )
    for choice in choices:
        assert outputs(f"{OWN} {choice} disagree 1 4 2 0 3 2") == [six("<disagree>")]


def test_an_agreed_refusal_is_no_agreement() -> None:
    assert outputs(f"{OWN} no agreement <eos> reward=no agreement agree 1 4 2 0 3 2") == [six("<no_agreement>")]


def test_a_disconnection_counts_only_when_the_partners_view_was_kept() -> None:
    own = f"{OWN} disconnect <eos> reward=disconnect agree 1 4 2 0 3 2"
    partner = f"{PARTNER} disconnect <eos> reward=disconnect agree 1 1 2 3 3 1"
    assert outputs(own) == [six("<disagree>")]
    assert outputs(own, partner) == [six("<disconnect>")] * 2
    assert outputs(own, partner.replace("fine", "no")) == [six("<disagree>")] * 2


def test_held_out_lines_are_left_out_and_the_order_is_kept() -> None:
    other = DEAL.replace("fine", "ok")
    last = DEAL.replace("fine", "sure")
    assert rebuild_train([other, DEAL, last], [LINE], "data.txt") == [LINE.replace("fine", "ok"), LINE.replace("fine", "sure")]
    for line in rebuild_train([other, DEAL], [], "data.txt"):
        parse_line(line)


def test_a_held_out_line_that_the_release_lacks_is_an_error() -> None:
    with pytest.raises(DataError, match="1 held-out lines do not occur"):
        rebuild_train([DEAL], [LINE, LINE.replace("fine", "ok")], "data.txt")


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (DEAL.replace("<selection> ", ""), "a raw line holds one <selection>"),
        (DEAL.replace("item2=0 <eos>", "item2=0"), "the choice ends with <eos>"),
        (DEAL.replace(" agree ", " maybe "), "agree or disagree follow the choice"),
        (DEAL.replace("reward=6 ", ""), "agree or disagree follow the choice"),
        (DEAL.replace("item2=0 <eos>", "<eos>"), "the choice is three item tokens"),
        (DEAL.replace("item2=0 <eos>", "item2=9 <eos>"), "the choice is three item tokens"),
        (DEAL.replace("item1=2 ", "item1=3 "), "a deal that can be chosen"),
        (DEAL.replace("1 1 2 3 3 1", "1 1 2 3 3 2"), "worth 10 in total"),
        (DEAL.replace(" 1 4 2 0 3 2", " 1 4 2 0 3 x"), "a context is 6 numbers"),
        (DEAL.replace("mine <eos>", "mine"), "every turn ends with <eos>"),
        ("", "a raw line holds one <selection>"),
    ],
)
def test_a_broken_raw_line_is_an_error_with_its_place(broken: str, rule: str) -> None:
    with pytest.raises(DataError) as caught:
        rebuild_train([DEAL, broken], [], "folder/data.txt")
    assert caught.value.where == FileLine("folder/data.txt", 2)
    assert rule in caught.value.what
