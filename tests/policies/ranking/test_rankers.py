"""Rankers by name, what each promises whatever is asked beside it, and names that stand for nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parley.envs.core.errors import CheckpointError, ConfigError, RankerError
from parley.envs.corpora.pairs.turns import Utterance
from parley.envs.ranking.groups import Context
from parley.policies.core.fitting.batches import example_nll
from parley.policies.ranking.matching.fit import format_of
from parley.policies.ranking.ranker import Pair, Ranker, compared_scores, scores_of
from parley.policies.ranking.rankers import load_ranker, rankers
from parley.policies.seq2seq.scoring import save_model
from parley.policies.vhred.decoding import FORMAT
from tests.policies.chat.fake_server import Said, completion, serving
from tests.policies.ranking.matching.made_up import KINDS, matcher
from tests.policies.seq2seq.made_up import language_model, seq2seq
from tests.policies.vhred.made_up import vhred

OWN = """
class Half:
    def score(self, context, candidates):
        return [len(reply) / 2 for reply in candidates]

class Most:
    def __init__(self, word):
        self.word = word

    @classmethod
    def fit(cls, contexts):
        words = sorted(word for context in contexts for turn in context for word in turn)
        return cls(max(words, key=words.count))

    def score(self, context, candidates):
        return [float(self.word in reply) for reply in candidates]

class Unfit(Half):
    def fit(self, data):
        raise NotImplementedError

def made():
    return Half()

def nothing():
    return None

def broken():
    raise RuntimeError("my own bug")
"""
TRAINING: list[Context] = [(("w1", "w2"), ("w3", "w2", "w20")), (("w2", "w4"),)]
WORDS = ("w1", "w2", "w3", "w20", "it", "is", "on", "hello", "you", "unknown")
CHAT_MODELS = """
from parley.policies.chat.model import Access, ReplyScore

class Rates:
    def reply(self, messages):
        return str(sum(map(ord, messages[-1]["content"])) % 101)

class Scores(Rates):
    access = Access.SCORES

    def score(self, chats, replies):
        said = [sum(map(ord, "".join(part.content for part in chat))) % 89 for chat in chats]
        return [ReplyScore(-1.0 - number % 7 - len(reply) / 3, 2) for number, reply in zip(said, replies)]
"""


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def of_seq2seq(folder: Path) -> str:
    save_model(seq2seq(), folder, {})
    return f"seq2seq:{folder}"


def of_vhred(folder: Path) -> str:
    FORMAT.save(vhred(), folder, {})
    return f"seq2seq:{folder}"


def of_language_model(folder: Path) -> str:
    save_model(language_model(), folder, {})
    return f"lm:{folder}"


def of_cross_encoder(folder: Path) -> str:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from tests.policies.ranking.folders import cross_encoder

    return f"hf:{cross_encoder(folder, labels=2, positions=16)}"


def of_bi_encoder(folder: Path) -> str:
    pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
    from tests.policies.ranking.folders import bi_encoder

    return f"hf:{bi_encoder(folder, ('max',), longest=12)}"


def of_causal_model(template: str | None) -> Callable[[Path], str]:
    def made(folder: Path) -> str:
        pytest.importorskip("transformers", reason="the extra hugging-face is not installed")
        from tests.policies.chat.tiny import saved

        return f"hf:{saved(folder, template, positions=64)}"

    return made


def of_gguf(folder: Path) -> str:
    for package in ("gguf", "transformers"):
        pytest.importorskip(package, reason="the extra gguf is not installed")
    from tests.policies.small_gguf import write_gguf

    folder.mkdir()
    write_gguf(folder / "model.gguf", positions=1024)
    return f"gguf:{folder / 'model.gguf'}"


def of_chat_model(name: str) -> Callable[[Path], str]:
    def made(folder: Path) -> str:
        folder.mkdir()
        (folder / "chats.py").write_text(CHAT_MODELS)
        return f"{folder / 'chats.py'}:{name}"

    return made


def of_matcher(kind: str) -> Callable[[Path], str]:
    def made(folder: Path) -> str:
        model = matcher(kind)
        format_of(model.sizes).save(model, folder, {})
        return str(folder)

    return made


MADE: dict[str, Callable[[Path], str]] = {
    **{name: lambda folder, name=name: name for name in rankers},  # type: ignore[misc]  # a default that binds the name
    "seq2seq": of_seq2seq,
    "vhred": of_vhred,
    "language model": of_language_model,
    **{kind: of_matcher(kind) for kind in KINDS},
    "cross-encoder": of_cross_encoder,
    "bi-encoder": of_bi_encoder,
    "causal model": of_causal_model("{% for m in messages %}<s> {{ m['content'] }} </s> {% endfor %}"),
    "causal model without a template": of_causal_model(None),
    "gguf": of_gguf,
    "chat model of one's own that scores": of_chat_model("Scores"),
    "chat model of one's own that rates": of_chat_model("Rates"),
    "response only": lambda folder: f"response-only:{of_seq2seq(folder)}",
}


def rated(_: int, body: dict[str, Any]) -> Said:
    """A rating that depends on what is asked alone."""
    return Said(completion(str(sum(map(ord, body["messages"][-1]["content"])) % 101)))


@pytest.fixture(params=[*(pytest.param(name, marks=[pytest.mark.slow] * (name == "gguf")) for name in MADE), "served"])
def ranker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ranker]:
    """A file of llama.cpp takes long to be read."""
    if request.param == "served":
        with serving(rated) as server:
            yield load_ranker(server.name)
    else:
        yield load_ranker(MADE[request.param](tmp_path / "model"), TRAINING)


UTTERANCES = st.lists(st.sampled_from(WORDS), max_size=9).map(tuple)
GROUPS = st.tuples(st.lists(UTTERANCES, min_size=1, max_size=4).map(tuple), st.lists(UTTERANCES, min_size=1, max_size=4))


@given(pairs=st.lists(GROUPS, min_size=1, max_size=4), data=st.data())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_a_score_depends_on_context_and_candidate_alone(ranker: Ranker, pairs: list[Pair], data: st.DataObject) -> None:
    together = scores_of(ranker, pairs)
    order = data.draw(st.permutations(range(len(pairs))))
    shuffled = scores_of(ranker, [pairs[i] for i in order])
    for scores, (context, candidates) in zip(together, pairs, strict=True):
        alone = [scores_of(ranker, [(context, [reply])])[0][0] for reply in candidates]
        np.testing.assert_allclose(scores, alone, rtol=1e-5, atol=1e-6)
        places = data.draw(st.permutations(range(len(candidates))))
        moved = np.asarray(ranker.score(context, [candidates[place] for place in places]))
        np.testing.assert_allclose(moved, scores[list(places)], rtol=1e-5, atol=1e-6)
    for place, i in enumerate(order):
        np.testing.assert_allclose(shuffled[place], together[i], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["seq2seq", "vhred"])
def test_a_response_model_scores_by_the_mean_likelihood_of_a_replys_words(tmp_path: Path, name: str) -> None:
    from parley.policies.core.responders import load_responder

    called = MADE[name](tmp_path)
    responder: Any = load_responder(called.removeprefix("seq2seq:"))
    context, replies = (("w1", "w2"), ("w3",)), [("w4", "w5"), ("w6",), ()]
    wanted = []
    for reply in replies:
        batch = responder.examples([tuple((turn,) for turn in context)], [(reply,)]).batch(np.array([0]))
        with torch.no_grad():
            nats_B, words_B = example_nll(responder.model, batch)
        assert int(words_B) == len(reply) + 1
        wanted.append(-float(nats_B) / int(words_B))
    np.testing.assert_allclose(load_ranker(called).score(context, replies), wanted, rtol=1e-5)
    assert len(set(np.round(wanted, 3))) == 3
    assert np.isfinite(load_ranker(called).score(((),), [()])).all()


def test_a_language_model_reads_no_context(tmp_path: Path) -> None:
    ranker = load_ranker(of_language_model(tmp_path))
    first, second = scores_of(ranker, [((("w1",),), [("w2", "w3"), ()]), ((("w9",),), [("w2", "w3"), ()])])
    assert first.tolist() == second.tolist()
    model, ids = language_model(), language_model().vocabulary.encode(["<s>", "w2", "w3", "</s>"])
    with torch.no_grad():
        logs_TV = model(torch.from_numpy(ids[None, :-1]))[0].log_softmax(-1)
    np.testing.assert_allclose(first[0], float(logs_TV[torch.arange(3), torch.from_numpy(ids[1:])].mean()), rtol=1e-5)


@pytest.mark.parametrize("name", ["Half", "made", "Unfit"])
def test_a_class_or_function_of_ones_own_ranks(own: Path, name: str) -> None:
    assert load_ranker(f"{own}:{name}").score(((),), [("a",), ("b", "c")]) == [0.5, 1.0]


def test_a_class_of_ones_own_may_be_fitted(own: Path) -> None:
    ranker = load_ranker(f"response-only:{own}:Most", TRAINING)
    assert np.asarray(ranker.score(((),), [("w1",), ("w2", "w1")])).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", r"makes no ranker(.|\n)*own\.py"),
        ("broken", r"raised an error(.|\n)*own\.py:29(.|\n)*my own bug"),
        ("Hlaf", "did you mean 'Half'"),
        ("Most", "fitted on training contexts, and there are none"),
    ],
)
def test_what_makes_no_ranker_is_named(own: Path, name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        load_ranker(f"{own}:{name}")


def test_a_name_that_stands_for_nothing_says_what_is_near(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no ranker is called 'tdidf', did you mean 'tfidf'"):
        load_ranker("tdidf")
    with pytest.raises(ConfigError, match="fitted on training contexts"):
        load_ranker("bm25")
    with pytest.raises(CheckpointError, match="no checkpoint is there"):
        load_ranker(str(tmp_path / "runs" / "none"))


def test_models_that_rank_otherwise_are_named(tmp_path: Path, own: Path) -> None:
    name = of_language_model(tmp_path).removeprefix("lm:")
    with pytest.raises(CheckpointError, match=r"do not match contexts(.|\n)*'language-model'(.|\n)*lm:"):
        load_ranker(name)
    with pytest.raises(CheckpointError, match="do not answer"):
        load_ranker(f"seq2seq:{name}")
    own.write_text("class Echo:\n    def respond(self, contexts):\n        return [c[-1] for c in contexts]\n")
    with pytest.raises(CheckpointError, match="says no likelihoods"):
        load_ranker(f"seq2seq:{own}:Echo")


class Refuses:
    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        raise OSError("no such device")


def test_a_wrapped_ranker_that_dies_says_which_it_was() -> None:
    from parley.policies.ranking.ranker import ResponseOnly

    with pytest.raises(RankerError, match=r"raised an error(.|\n)*where: Refuses(.|\n)*no such device"):
        scores_of(ResponseOnly(Refuses()), [(((),), [("a",)])])


class Share:
    """What a reply has of ten words."""

    def score(self, context: Context, candidates: Sequence[Utterance]) -> list[float]:
        return [len(reply) / 10 for reply in candidates]


class LikelyShare(Share):
    gives_probabilities = True


@pytest.mark.parametrize("kind", [Share, LikelyShare])
def test_a_ranker_without_its_context_is_compared_on_its_own_scale(kind: type[Share]) -> None:
    from parley.policies.ranking.ranker import ResponseOnly

    asked: list[Pair] = [(TRAINING[0], [("a",), ("a", "b", "c")])]
    ((alone,), (whole,)) = (compared_scores(ranker, asked) for ranker in (ResponseOnly(kind()), kind()))
    assert alone.tolist() == whole.tolist()
