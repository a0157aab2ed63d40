"""The sweeps that come with Parley: the knobs of every attack, and of the trainings against them.

Bounds lie an order of magnitude around what the papers or our presets use. Torch-free and Ray-free.
"""

from __future__ import annotations

from parley.tune.plan import Plan
from parley.tune.space import Choice, Integer, Real

GIBBS_ENUM = Plan(
    job="search",
    preset="quick",
    space={
        "search.candidates": Integer(10, 400, log=True),
        "search.restarts": Integer(1, 10),
        "search.max_sweeps": Integer(2, 50, log=True),
        "objective.lm_weight": Real(0.1, 10.0, log=True),
        # What is wanted changes what the search goes for; what is measured stays the same type. Only io types weigh the input.
        "hit": Choice(("io-sample-min-k1", "io-sample-min-k2", "io-sample-min-k3")),
    },
    metrics=("hit_rate.io-sample-min-k1",),
    direction="max",
    fidelity="limit",
    budget=90,
)
RL_ATTACK = Plan(
    job="evaluate-exploitability",
    preset="cheng2019",
    space={
        "reinforce.learning_rate": Real(3e-5, 3e-3, log=True),
        "reinforce.gamma": Real(0.8, 1.0),
        "reinforce.kl_weight": Real(0.01, 2.0, log=True),
        "reinforce.supervised_weight": Real(0.05, 2.0, log=True),
    },
    # In dialogues that it did not learn from, the target free to go on. Exploitability would count other adversaries too.
    metrics=("mean_fresh",),
    direction="max",
    fidelity="reinforce.dialogues",
    budget=64_000,
    workers="env_runners",
)
MIN_MAX = Plan(
    job="minmax",
    preset="cheng2019",
    space={
        "attack.learning_rate": Real(3e-5, 3e-3, log=True),
        "defence.learning_rate": Real(3e-5, 3e-3, log=True),
        "defence.gamma": Real(0.8, 1.0),
        "defence.kl_weight": Real(0.01, 2.0, log=True),
        "defence.dialogues": Integer(3_200, 51_200, log=True),
    },
    metrics=("exploitability",),
    direction="min",
    fidelity="rounds",
    budget=9,
)
WHITE_BOX = Plan(
    job="attack-reactive",
    preset="cheng2019",
    space={
        "search.kappa": Real(0.0, 5.0),
        "search.max_replacements": Integer(1, 6),
        "search.proposals": Choice(("pad-scan", "exhaustive", "gradient", "random")),
    },
    metrics=("advantage",),
    direction="max",
    fidelity="dialogues",
    budget=900,
)
PERTURBATION = Plan(
    job="evaluate-robustness",
    preset="quick",
    space={
        "perturb.paraphrase_rate": Real(0.1, 1.0),
        "perturb.grammar_rate": Real(0.1, 1.0),
        "perturb.swap_every": Integer(2, 12),
    },
    # Replies are to change though contexts hardly do; the most words change the most replies, which says nothing.
    metrics=tuple(
        f"{kind}.base.{strategy}"
        for kind in ("change_rate", "context_similarity")
        for strategy in ("data-paraphrase", "grammar-errors", "random-swap")
    ),
    direction="max",
    fidelity="limit",
    budget=900,
)
ADVERSARIAL_TRAINING = Plan(
    job="train-adversarial",
    preset="niu2018",
    space={
        "alpha": Real(0.1, 10.0, log=True),
        "margin": Real(0.01, 1.0, log=True),
        "fit.learning_rate": Real(2e-5, 2e-3, log=True),
    },
    # What replies lose by contexts that should change them, less what they lose on clean ones, both in nats per word.
    metrics=("margin", "-test_nll"),
    direction="max",
    fidelity="fit.max_epochs",
    budget=9,
    workers="",
)
RANKING = Plan(
    job="attack-ranking",
    preset="helpdesk",
    space={
        "method": Choice(("greedy", "beam", "random")),
        "edits": Integer(1, 6),
        "budget": Integer(10, 500, log=True),
        # Of the beam alone; one takes the best edit, one after the other.
        "attack.beams": Integer(1, 16, log=True),
        "moves": Choice(("context", "context,synonym", "context,insertion", "context,synonym,insertion,deletion,swap")),
        "attack.keep_tags": Choice((True, False)),
    },
    # A larger budget finds no less, so that queries have a price: a hundred of them that of a tenth of all successes.
    metrics=("success@{budget}.tfidf.{method}", "-0.001*queries_asked.tfidf.{method}"),
    direction="max",
    fidelity="limit",
    budget=90,
)
RANKING_TRAINING = Plan(
    job="train-matcher",
    preset="hardened",
    space={"adversary_share": Real(0.02, 1.0, log=True), "fit.learning_rate": Real(1e-4, 3e-3, log=True)},
    # Right replies first among candidates as they are, and as adversaries leave them: one is easily won by losing the other.
    metrics=("validation_r@1", "validation_r@1_attacked"),
    direction="max",
    fidelity="fit.max_epochs",
    budget=6,
    workers="",
)
REPLIES = Plan(
    job="minmax-replies",
    preset="helpdesk",
    space={
        "learning.generator_rate": Real(1e-5, 3e-3, log=True),
        "learning.discriminator_rate": Real(1e-4, 1e-2, log=True),
        "learning.discriminator_steps": Integer(0, 8),
        "learning.teacher_steps": Integer(0, 3),
        "num_rollouts": Integer(1, 8, log=True),
    },
    # Of the best round. AdverSuc never without machine-vs-random: their sum is 1 of random replies of people (.5 and .5), of
    # one reply to everybody and of none (0 and 1); with every share of noise it nears 1, so that noise pays nobody above that.
    # What replies lose on recorded ones has a price: a judge is deceived by much that nobody says.
    metrics=("validation_adversuc", "validation_random", "-0.1*validation_nll"),
    direction="max",
    fidelity="learning.rounds",
    budget=9,
    workers="env_runners",
)
DEMO = Plan(
    job="selfplay",
    preset="scripted",
    space={"adversary": Choice(("scripted", "scripted-tough")), "max_turns": Integer(4, 20)},
    metrics=("advantage",),
    direction="max",
    fidelity="dialogues",
    budget=180,
)
