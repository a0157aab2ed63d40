"""The jobs that train one model, as `catalogue.py` lists all jobs."""

from __future__ import annotations

from engine.jobs.entry import Entry

TRAININGS = (
    Entry(
        ("train", "negotiator"),
        "fit a negotiation agent to recorded dialogues",
        "engine.jobs.negotiation.negotiator:TRAIN_NEGOTIATOR",
        (
            "parley train negotiator                       # Deal or No Deal, fast recipe",
            "parley train negotiator lewis2017             # the released recipe, 30 + 2 epochs",
            "parley train negotiator demo --run runs/small # the embedded corpus",
        ),
    ),
    Entry(
        ("train", "rl"),
        "train a goal-based agent by self-play against a frozen one (RLlib)",
        "engine.jobs.negotiation.reinforce:TRAIN_RL",
        (
            "parley train rl --target runs/negotiator",
            "parley train rl --target runs/negotiator --env-runners 8 --address 10.0.0.1:6379",
            "parley train rl --target runs/negotiator --set reinforce.dialogues=200000 --run runs/rl-long",
        ),
    ),
    Entry(
        ("train", "adversary"),
        "train an adversary against a frozen target (RLlib)",
        "engine.jobs.negotiation.reinforce:TRAIN_ADVERSARY",
        (
            "parley train adversary --target runs/negotiator",
            "parley train adversary --target runs/rl --learner runs/negotiator --run runs/adversary-rl",
            "parley train adversary --target runs/negotiator --seeds 3 --trainers 2",
        ),
    ),
    Entry(
        ("train", "target"),
        "harden a target against frozen adversaries (RLlib)",
        "engine.jobs.negotiation.reinforce:TRAIN_TARGET",
        (
            "parley train target --target runs/rl --adversaries runs/adversary-rl --partner runs/negotiator",
            "parley train target --adversaries runs/a1,runs/a2,runs/a3 --set opponents.sampling=prioritised",
            "parley train target --set opponents.partner_share=0.25 --set reinforce.dialogues=40000",
        ),
    ),
    Entry(
        ("train", "seq2seq"),
        "fit a sequence-to-sequence dialogue model to pairs of utterance and reply",
        "engine.jobs.responders.seq2seq:TRAIN_SEQ2SEQ",
        (
            "parley train seq2seq                          # the built-in help desk",
            "parley train seq2seq dialogue                 # two turns of context, the reply links of #ubuntu",
            "parley train seq2seq he2018 --device cuda     # published sizes and recipe, on Ubuntu",
        ),
    ),
    Entry(
        ("train", "lm"),
        "fit a language model to the utterances of a corpus of pairs",
        "engine.jobs.responders.seq2seq:TRAIN_LM",
        (
            "parley train lm                               # the built-in help desk",
            "parley train lm --corpus switchboard --set sizes.dropout=0.3",
            "parley train lm he2018 --device cuda          # published sizes and recipe, on Ubuntu",
        ),
    ),
    Entry(
        ("train", "vhred"),
        "fit a response model with a latent variable to dialogues",
        "engine.jobs.responders.vhred:TRAIN_VHRED",
        (
            "parley train vhred                            # half the published widths, the conversations of #ubuntu",
            "parley train vhred demo                       # the built-in help desk",
            "parley train vhred niu2018 --device cuda      # published sizes and recipe",
        ),
    ),
    Entry(
        ("train", "paraphraser"),
        "fit a paraphraser (pointer-generator network) to pairs of paraphrases",
        "engine.jobs.responders.paraphraser:TRAIN_PARAPHRASER",
        (
            "parley train paraphraser                      # MSR pairs",
            "parley train paraphraser demo                 # the built-in help desk, in seconds",
            "parley train paraphraser --corpus mine.tsv --set vocabulary=20000",
        ),
    ),
    Entry(
        ("train", "adversarial"),
        "train a response model against perturbations of its contexts",
        "engine.jobs.perturb.adversarial:TRAIN_ADVERSARIAL",
        (
            "parley train adversarial --model runs/seq2seq",
            "parley train adversarial --model runs/seq2seq --strategies antonym --run runs/adversarial-antonym",
            "parley train adversarial demo --model runs/demo/model",
        ),
    ),
    Entry(
        ("train", "hardened"),
        "harden a Hugging Face model against triggers that searches found, and perturbed contexts",
        "engine.jobs.responders.hardened:TRAIN_HARDENED",
        (
            "parley train hardened --model hf:MODEL --searches runs/search",
            "parley train hardened --model hf:MODEL --searches runs/search --control --run runs/hardened-control",
            "parley train hardened full --model hf:MODEL --strategies random-swap,character-noise",
        ),
    ),
    Entry(
        ("train", "reranking"),
        "reward a response model for replies that other contexts would not call forth",
        "engine.jobs.perturb.reranking:TRAIN_RERANKING",
        (
            "parley train reranking --model runs/seq2seq   # the paper's reward",
            "parley train reranking released --model runs/seq2seq --set reranking.weight=0.3",
            "parley train reranking demo --model runs/demo/model",
        ),
    ),
    Entry(
        ("train", "discriminator"),
        "fit a discriminator to tell a generator's replies from people's",
        "engine.jobs.generation.discriminator:TRAIN_DISCRIMINATOR",
        (
            "parley train discriminator --generator runs/seq2seq                  # the built-in help desk",
            "parley train discriminator --generator runs/seq2seq --prefixes       # for rewards of partial replies",
            "parley train discriminator li2017 --generator runs/dialogue --decoder mmi:backward=runs/backward",
        ),
    ),
    Entry(
        ("train", "dynonet"),
        "fit a bot that looks for the friend both have, with a knowledge graph that changes as people talk",
        "engine.jobs.collaboration.dynonet:TRAIN_DYNONET",
        (
            "parley train dynonet                          # the built-in chats, a third of the published widths",
            "parley train dynonet he2017 --run runs/dynonet-1 --seed 1",
            "parley train dynonet --start runs/dynonet --against confusing-entity,none --run runs/hardened",
        ),
    ),
    Entry(
        ("train", "liar"),
        "train a liar that keeps a player of MutualFriends from finding the common friend (RLlib)",
        "engine.jobs.collaboration.liar:TRAIN_LIAR",
        (
            "parley train liar quick                       # against the scripted player, a minute",
            "parley train liar --model runs/dynonet --scenarios 500",
            "parley train liar --model mine.py:Bot --set game.lies=5 --set learning.updates=60",
        ),
    ),
    Entry(
        ("train", "matcher"),
        "fit a model that matches replies with contexts (SMN, DAM, MRFN), or harden one",
        "engine.jobs.retrieval.matcher:TRAIN_MATCHER",
        (
            "parley train matcher                          # a small SMN, the built-in help desk",
            "parley train matcher dam-paper --corpus ubuntu_dialogues --device cuda",
            "parley train matcher --start runs/matcher --against iiw,search --run runs/matcher-hardened",
        ),
    ),
    Entry(
        ("train", "editor"),
        "train a policy that edits replies to mislead a frozen ranker (RLlib)",
        "engine.jobs.retrieval.editor:TRAIN_EDITOR",
        (
            "parley train editor                           # against TF-IDF, the built-in help desk",
            "parley train editor --model runs/matcher --limit 200 --run runs/editor-matcher",
            "parley train editor --model bm25 --set game.edits=3",
        ),
    ),
)
