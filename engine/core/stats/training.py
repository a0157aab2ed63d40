"""What trainings report: names, directions and definitions of their figures.

Trainings define figures of one name differently, so what a figure means is asked of the job that measured it
(`parley.engine.core.verbs.job.Job.legend`).
"""

from __future__ import annotations

from parley.engine.core.stats.statistics import Metric

LOWER, HIGHER = "lower: better", "higher: better"
NEGOTIATOR = {
    "validation_ppl": Metric(
        "validation perplexity", LOWER, "released formula: padding above the line, first tokens below", "perplexity"
    ),
    "validation_ppl_per_token": Metric(
        "validation perplexity per token", LOWER, "exp of the mean over predicted tokens", "perplexity"
    ),
    "validation_selection_ppl": Metric(
        "validation selection perplexity", LOWER, "released formula, the stopping criterion", "perplexity"
    ),
    "validation_selection_accuracy": Metric("validation selections all right", HIGHER, "share with all heads right", "rate"),
    "test_ppl": Metric("test perplexity", LOWER, "released formula: padding above the line, first tokens below", "perplexity"),
    "test_ppl_per_token": Metric("test perplexity per token", LOWER, "exp of the mean over predicted tokens", "perplexity"),
    "test_selection_ppl": Metric("test selection perplexity", LOWER, "released formula", "perplexity"),
    "test_selection_accuracy": Metric("test selections all right", HIGHER, "share with all heads right", "rate"),
}
LEARNING = {
    "training_reward": Metric("reward, last updates", "higher: learner", "mean over the last tenth of the updates"),
    "training_advantage": Metric("advantage, last updates", "higher: adversary", "side 0's less side 1's points, same updates"),
    "training_agreement": Metric("agreement, last updates", "higher: both", "share of dialogues, same updates", "rate"),
    "perplexity": Metric("perplexity", LOWER, "of the corpus' validation dialogues, released formula", "perplexity"),
    "dialogues_per_s": Metric("dialogues per second", HIGHER, "played and learned from, wall time"),
    "share_outside_networks": Metric("share outside networks", LOWER, "of wall time, neither speaking nor learning"),
}
LOST = {"dialogues_lost": Metric("dialogues lost", LOWER, "in which an agent failed: nothing is learned from them", "count")}
PREDICTION = {
    "test_nll": Metric(
        "test loss per word", LOWER, "nats per word (or piece), </s> counted; minus it: the threshold of hits", main=True
    ),
    "test_ppl": Metric("test perplexity", LOWER, "exp of the test loss per word", "perplexity", main=True),
    "validation_nll": Metric("validation loss per word", LOWER, "nats per word, </s> counted; the stopping criterion"),
    "validation_ppl": Metric("validation perplexity", LOWER, "exp of the validation loss per word", "perplexity"),
}
TEXT = {
    "test_ppl_word": Metric(
        "test perplexity per word",
        LOWER,
        "nats over words and ends, in whatever units: pieces spell one word together",
        "perplexity",
    ),
    "test_ppl_char": Metric(
        "test perplexity per character",
        LOWER,
        "the blank or mark behind a word counted; <unk> counts as that alone",
        "perplexity",
    ),
    "test_unknown": Metric(
        "unknown test words", LOWER, "share of <unk>, whose letters cost nothing, among words and ends", "share"
    ),
}
"""What models of words and of pieces can be compared by."""
REWRITING = PREDICTION | {
    "test_nll": Metric("test loss per word", LOWER, "nats per word, </s> counted; copied words at what copying gives them")
}
READING = {
    "context_gain": Metric(
        "what contexts tell it",
        HIGHER,
        "nats per word that test replies cost more behind other examples' contexts; near 0: the model answers without reading",
        main=True,
    )
}
DIVERGENCES = {
    f"{split}_kl": Metric(f"{split} divergence", "near 0 the latent variable is unused", "KL(posterior || prior), nats a reply")
    for split in ("test", "validation")
}
BEFORE = "_before"
"""What the names of figures of the model that it began with end in."""
RECORDED = "_recorded"
"""What those of recorded replies to the same contexts end in."""
_NLL = {
    f"{split}_nll{suffix}": Metric(f"{split} loss per word{where}", LOWER, f"nats per word, </s> counted; {what}", main=main)
    for split, main in (("test", True), ("validation", False))
    for suffix, where, what in (
        ("", "", "recorded contexts"),
        ("_perturbed", ", perturbed", "contexts that were perturbed so that the answer should not change"),
    )
}
_MARGIN = {
    "margin": Metric("margin", HIGHER, "nats per word that a reply loses by a context that should change it", main=True),
    "margin_met": Metric("margin met", HIGHER, "share of those contexts by which it loses as much as was asked for", "share"),
}
AGAINST = {
    name + suffix: metric._replace(title=metric.title + when) if suffix else metric
    for name, metric in (_NLL | _MARGIN).items()
    for suffix, when in (("", ""), (BEFORE, ", before"))
}
_REPLIED = {
    "test_nll": Metric("test loss per word", LOWER, "nats per word of recorded replies, </s> counted", main=True),
    "specificity": Metric(
        "what contexts tell replies",
        HIGHER,
        "nats per word that its greedy replies cost more behind other contexts; rare words alone do not raise it",
        main=True,
    ),
    "reward": Metric("reward of sampled replies", HIGHER, "nats per word behind other contexts", main=True),
    "greedy_reward": Metric("reward of greedy replies", HIGHER, "the same of its own likeliest replies"),
    "reply_words": Metric("words of a reply", "nearer to the recorded", "mean over contexts, greedy replies"),
    "rare_words": Metric("rare words", "nearer to the recorded", "words beyond those that make 95 % of training", "share"),
    "unknown_words": Metric("unknown words", "nearer to the recorded", "<unk> among the words of replies", "share"),
    "distinct_1": Metric("distinct-1", HIGHER, "different words over words of greedy replies"),
    "distinct_2": Metric("distinct-2", HIGHER, "different pairs of neighbouring words over such pairs"),
    "reply_ppl": Metric(
        "perplexity of replies", "nearer to the recorded", "of greedy replies, under another language model", "perplexity"
    ),
}
_LOOKS = ("reply_words", "rare_words", "unknown_words", "distinct_1", "distinct_2", "reply_ppl")
RERANKING = {
    name + suffix: metric._replace(title=metric.title + when) if suffix else metric
    for name, metric in _REPLIED.items()
    for suffix, when in (("", ""), (BEFORE, ", before"), *([(RECORDED, ", recorded")] if name in _LOOKS else []))
}
"""Of a model that is rewarded for replies that other contexts would not call forth."""
_HARDENED = {
    "trigger_said": Metric(
        "targets said",
        LOWER,
        "share of held-out triggers, typed, after which the likeliest reply begins with the target",
        "rate",
        main=True,
    ),
    "trigger_answered": Metric(
        "triggers answered as asked", HIGHER, "share of the same after which the likeliest reply is the wanted one", "rate"
    ),
    "trigger_nll": Metric("loss of wanted answers", LOWER, "nats per token of the wanted replies to held-out triggers"),
    "target_nll": Metric("loss of targets", HIGHER, "nats per token of the targets after held-out triggers"),
    "learned_said": Metric("targets said, learned from", LOWER, "share of the triggers of training, as targets said", "rate"),
    "clean_nll": Metric("loss on clean contexts", LOWER, "nats per token of the replies to held-out contexts", main=True),
    "clean_kept": Metric("clean replies kept", HIGHER, "share of held-out contexts that are answered as before", "rate"),
    "clean_refused": Metric(
        "clean contexts refused", LOWER, "share of held-out contexts answered by what triggers are to be answered", "rate"
    ),
    "perturbed_nll": Metric("loss on perturbed contexts", LOWER, "the same behind held-out contexts that were perturbed"),
    "perturbed_kept": Metric(
        "perturbed replies kept", HIGHER, "share of those answered by the reply that was learned for the clean context", "rate"
    ),
    "margin": Metric(
        "margin", HIGHER, "nats per token that replies to clean contexts lose behind the same ones, changed so that they should"
    ),
    "margin_met": _MARGIN["margin_met"],
    "contrast_changed": Metric(
        "contrasts answered otherwise", HIGHER, "share of those contexts with another likeliest reply than unchanged", "rate"
    ),
}
HARDENED = {
    name + suffix: metric._replace(title=metric.title + when) if suffix else metric
    for name, metric in _HARDENED.items()
    for suffix, when in (("", ""), (BEFORE, ", before"))
    if name != "clean_kept" or not suffix
}
"""Of a causal Hugging Face model that was trained not to follow triggers or perturbations."""
