"""Training of DynoNets as a run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from parley.engine.core.runs.run_folder import RunFolder
from parley.engine.core.verbs.job import Silent
from parley.engine.mutual_friends.metrics.chats import FRIENDS_TRAINING
from parley.engine.mutual_friends.verbs.config import NONE, Channels, label_of, misheard, strategy_list
from parley.engine.mutual_friends.verbs.dynonet import TRAIN_DYNONET, TrainDynoNetConfig, he2017, stanonet
from parley.engine.perturb.strategy import PerturbSettings
from parley.envs.core.errors import CheckpointError, ConfigError, OutOfRangeError
from parley.envs.mutual_friends.compiled import load_friends
from parley.envs.mutual_friends.lies import LieRules, num_lies
from parley.policies.dynonet.model import DYNONET, corpus_of, load_dynonet
from parley.policies.dynonet.settings import DynoNetSizes, dynonet_fit
from tests.engine.core.verbs.made_up import Notes, interrupt

SIZES = DynoNetSizes(embed=8, hidden=8, message=4, edge=4)
FIT = replace(dynonet_fit(), max_epochs=2, decay_epochs=1)
ASKED = TrainDynoNetConfig(limit=12, selfplay=3, sizes=SIZES, fit=FIT)


def test_a_run_stores_a_model_and_says_how_well_it_finds_friends(tmp_path: Path) -> None:
    result = TRAIN_DYNONET.run(ASKED, tmp_path / "run", Silent())
    assert list(result.metrics) == list(FRIENDS_TRAINING)
    assert result.metrics["selfplay_completion"].n == 3
    assert result.metrics["test_linked"].value > 0.8
    assert corpus_of(tmp_path / "run") == "friends"
    assert load_dynonet(tmp_path / "run").sizes == SIZES
    epochs = [event for event in RunFolder.load(tmp_path / "run").events() if event["kind"] == "epoch"]
    assert epochs[1]["validation_nll"] < epochs[0]["validation_nll"]
    assert result.next_commands == (f"parley evaluate collaboration --model {tmp_path / 'run'}",)
    assert TRAIN_DYNONET.run(ASKED, tmp_path / "run", Silent()).metrics == result.metrics


def test_the_next_command_evaluates_what_was_learned_against() -> None:
    lies, perturb = LieRules(lies=5), PerturbSettings(lexicon="built-in")
    asked = TrainDynoNetConfig(start="runs/dynonet", corpus="mine.py:CHATS", lies=lies, perturb=perturb, against=NONE)
    (control,) = TRAIN_DYNONET.next_commands(asked, Path("runs/longer"))
    assert "--strategies" not in control
    against = "none,misspellings,liar:a/liar,liar:b/liar"
    (command,) = TRAIN_DYNONET.next_commands(replace(asked, against=against), Path("runs/against"))
    assert "--strategies misspellings,liar:b/liar " in command, "liars of one label are evaluated one by one"
    for setting in ("--corpus mine.py:CHATS", "--set lies.lies=5", """--set 'perturb.lexicon="built-in"'"""):
        assert setting in control
        assert setting in command


def test_presets_and_mistakes(tmp_path: Path) -> None:
    assert he2017().corpus == stanonet().corpus == "mutualfriends_scripted"
    assert (he2017().sizes.dynamic, stanonet().sizes.dynamic) == (True, False)
    with pytest.raises(OutOfRangeError, match="precision"):
        replace(ASKED, fit=replace(FIT, precision="bfloat16"))
    with pytest.raises(ConfigError, match="friends"):
        TRAIN_DYNONET.run(replace(ASKED, corpus="freinds"), tmp_path / "run", Silent())


def test_a_model_goes_on_against_what_it_hears_and_the_control_makes_as_many_steps(tmp_path: Path) -> None:
    TRAIN_DYNONET.run(ASKED, tmp_path / "run", Silent())
    recipe = replace(FIT, max_epochs=1, decay_epochs=0, keep="last")
    asked = replace(ASKED, start=str(tmp_path / "run"), against="none", fit=recipe)
    notes, nets = Notes(), {}
    for name in ("none", "random-inputs,none"):
        folder = tmp_path / name
        result = TRAIN_DYNONET.run(replace(asked, against=name), folder, notes)
        nets[name] = load_dynonet(folder)
        assert nets[name].vocabulary == load_dynonet(tmp_path / "run").vocabulary
        assert [event["number"] for event in RunFolder.load(folder).events() if event["kind"] == "epoch"] == [1]
        assert DYNONET.provenance(folder / "checkpoint")["base"] == str(tmp_path / "run")
    assert result.next_commands == (
        f"parley evaluate collaboration --model {tmp_path / 'run'} --strategies random-inputs --trained {tmp_path / name}",
    )
    assert DYNONET.provenance(tmp_path / "none")["role"] == "control"
    assert DYNONET.provenance(tmp_path / name)["against"] == ["random-inputs", "none"]
    told = [said for said in notes.said if said.startswith("train split, chats by what is heard")]
    assert len(told) == 1
    assert "none " in told[0]
    assert "none 0 " not in told[0]
    weights = [net.state_dict()["output.weight"] for net in (load_dynonet(tmp_path / "run"), *nets.values())]
    assert not any((weights[i] == weights[i - 1]).all() for i in range(3))


def test_recorded_chats_are_heard_otherwise_and_said_as_they_were() -> None:
    corpus = load_friends("friends")
    chats = list(corpus.splits["val"][:6])
    channels = Channels(corpus, PerturbSettings(lexicon="built-in"), None, LieRules(lies=2))
    for name in strategy_list("all,random-lies,random-swap"):
        heard = misheard(chats, channels.named(name), range(6))
        assert [chat.events for chat in heard] == [chat.events for chat in chats]
        assert sum(num_lies(heard)) > 0, name
        assert misheard(chats[2:3], channels.named(name), [2]) == heard[2:3]
        if name == "random-lies":
            assert max(num_lies(heard)) <= 4, "two of each side"
    assert misheard(chats, None, range(6)) == misheard(heard, channels.named("none"), range(6))


LIAR = """
def reply(messages):
    with open({log!r}, "a") as file:
        file.write("asked\\n")
    return "2"
"""


def test_a_chat_model_that_lies_is_trained_against_and_asked_nothing_twice(tmp_path: Path) -> None:
    TRAIN_DYNONET.run(ASKED, tmp_path / "run", Silent())
    own, log, notes = tmp_path / "own.py", tmp_path / "asked", Notes()
    own.write_text(LIAR.format(log=str(log)))
    against = replace(ASKED, start=str(tmp_path / "run"), against=f"liar:{own}:reply,none", lies=LieRules(lies=1))
    interrupt(TRAIN_DYNONET, against, tmp_path / "further", "val split")
    asked = log.read_text().count("asked")
    TRAIN_DYNONET.run(against, tmp_path / "further", notes)
    kept = (tmp_path / "further" / "answers" / "answers.jsonl").read_text().splitlines()
    assert 0 < len(kept) == asked == log.read_text().count("asked")
    told = next(said for said in notes.said if said.startswith("train split, chats by what is heard"))
    assert "liar:reply " in told
    assert "(0 utterances heard otherwise), none" not in told
    with pytest.raises(CheckpointError, match="needs a folder"):
        TRAIN_DYNONET.run(replace(against, against="liar:hf:nowhere"), tmp_path / "other", Silent())
    assert not (tmp_path / "other").exists()


def test_names_of_strategies() -> None:
    assert label_of("liar:hf:models/My.Chat/") == "liar:My_Chat"
    assert label_of("liar:gguf:/a/Smol.Q4.gguf") == "liar:Smol_Q4"
    assert label_of("liar:openai:http://here/v1#my-model") == "liar:my-model"
    assert label_of("liar:/a/own.py:Liar") == "liar:Liar"
    assert strategy_list("all, random-lies,liar:runs/a/checkpoint")[2:] == (
        "confusing-entity",
        "random-lies",
        "liar:runs/a/checkpoint",
    )
    assert label_of("liar:runs/a/checkpoint/") == label_of("liar:a") == "liar:a"
    with pytest.raises(ConfigError, match="did you mean 'random-lies'"):
        strategy_list("random-lie")
    asked = replace(ASKED, start="runs/x", against="none,liar:runs/a")
    assert TRAIN_DYNONET.models(asked) == {"start": "runs/x", "liar:a": "runs/a"}
    for given in ({"start": "runs/x"}, {"against": "none"}):
        with pytest.raises(ConfigError, match="needs --"):
            replace(ASKED, **given)
    with pytest.raises(CheckpointError, match="--start"):
        TRAIN_DYNONET.run(replace(ASKED, start="runs/nothing", against="all"), Path("nowhere"), Silent())
