"""The list of jobs: verb and noun on the command line, one line of help, and where the `Job` is defined.

Listing imports nothing heavy; a job's module is imported when it is asked for. Those that train one model: `trainings.py`.
"""

from __future__ import annotations

from engine.jobs.entry import Entry
from engine.jobs.trainings import TRAININGS

ENTRIES = (
    Entry(
        ("demo",),
        "the whole story on the built-in corpus, offline, in a few minutes",
        "engine.jobs.demo:DEMO",
        (
            "parley demo                                   # goes on where it was interrupted",
            "parley demo --run runs/again --seed 2",
            "parley demo --dialogues 4000 --json --run runs/demo-large",
        ),
        reports=True,
    ),
    *TRAININGS,
    Entry(
        ("reply",),
        "what a response model replies to the contexts of a corpus, as files source<TAB>reply",
        "engine.jobs.responders.reply:REPLY",
        (
            "parley reply --model runs/seq2seq             # the test split of the model's corpus, greedily",
            "parley reply li2017 --model runs/seq2seq --decoder sample:0.8,forbid='<unk>' --run runs/sampled",
            "parley reply --model runs/seq2seq --decoder mmi:backward=runs/backward --workers 2",
        ),
    ),
    Entry(
        ("selfplay",),
        "let two agents negotiate, and measure who gains what",
        "engine.jobs.negotiation.match:SELFPLAY",
        (
            "parley selfplay --adversary scripted --target scripted-tough --dialogues 500",
            "parley selfplay --adversary runs/rl --target runs/negotiator --json",
            "parley selfplay --adversary runs/rl --target runs/negotiator --scenarios dealornodeal --workers 2",
        ),
    ),
    Entry(
        ("attack", "rl"),
        "play a trained adversary against a target",
        "engine.jobs.negotiation.attack:ATTACK_RL",
        (
            "parley attack rl --target runs/negotiator --speaker runs/adversary",
            "parley attack rl --target runs/rl --speaker runs/adversary-rl --judge runs/negotiator",
            "parley attack rl --target runs/negotiator --speaker runs/adversary --workers 2 --json",
        ),
    ),
    Entry(
        ("attack", "transfer"),
        "plug sentences that won elsewhere into ordinary dialogues",
        "engine.jobs.negotiation.attack:ATTACK_TRANSFER",
        (
            "parley attack transfer --target runs/negotiator --speaker runs/negotiator --set transfer.source=runs/attack-rl",
            "parley attack transfer fixed --target runs/negotiator --speaker runs/negotiator",
            "parley attack transfer --target runs/rl --speaker runs/rl --set transfer.turn=5",
        ),
    ),
    Entry(
        ("attack", "tactic"),
        "let a chat model write tactics for a player, and refine them from transcripts, beside controls",
        "engine.jobs.negotiation.tactic:ATTACK_TACTIC",
        (
            "parley attack tactic quick --attacker gguf:SmolLM2-135M-Instruct.gguf --target scripted-tough",
            "parley attack tactic --attacker openai:http://127.0.0.1:8000/v1#llama --target runs/negotiator --workers 2",
            "parley attack tactic --attacker mine.py:Writer --speaker hf:models/chat --set search.rounds=10 --held-out 500",
        ),
        reports=True,
    ),
    Entry(
        ("attack", "reactive"),
        "replace words so that the target ends the talk and chooses badly",
        "engine.jobs.negotiation.whitebox:ATTACK_REACTIVE",
        (
            "parley attack reactive --target runs/negotiator --speaker runs/negotiator --workers 2",
            "parley attack reactive decision-based --target runs/rl --speaker runs/rl --judge runs/negotiator",
            "parley attack reactive --turn 4 --set search.proposals=gradient --set search.max_replacements=3",
        ),
    ),
    Entry(
        ("attack", "preemptive"),
        "replace words so that the target asks for less in its reply",
        "engine.jobs.negotiation.whitebox:ATTACK_PREEMPTIVE",
        (
            "parley attack preemptive --target runs/negotiator --speaker runs/negotiator --workers 2",
            "parley attack preemptive --target runs/rl --speaker runs/rl --judge runs/negotiator",
            "parley attack preemptive --set search.replies=32 --set search.max_replacements=1",
        ),
    ),
    Entry(
        ("attack", "ra-pa-da"),
        "at every turn reactive, else preemptive, else wait",
        "engine.jobs.negotiation.whitebox:ATTACK_RA_PA_DA",
        (
            "parley attack ra-pa-da --target runs/negotiator --speaker runs/negotiator --workers 2",
            "parley attack ra-pa-da --target runs/rl --speaker runs/rl --judge runs/negotiator",
            "parley attack ra-pa-da --set search.goal=3 --set search.preemptive_goal=1",
        ),
    ),
    Entry(
        ("attack", "ra-pa-ta"),
        "at every turn reactive, else preemptive, else a sentence that won elsewhere",
        "engine.jobs.negotiation.whitebox:ATTACK_RA_PA_TA",
        (
            "parley attack ra-pa-ta --target runs/negotiator --speaker runs/negotiator --workers 2",
            'parley attack ra-pa-ta --set transfer.sentence="" --set transfer.source=runs/attack-rl',
            "parley attack ra-pa-ta --target runs/rl --speaker runs/rl --judge runs/negotiator",
        ),
    ),
    Entry(
        ("attack", "table"),
        "every attack on one target, beside the published figures",
        "engine.jobs.negotiation.table:ATTACK_TABLE",
        (
            "parley attack table --target runs/negotiator --adversary runs/adversary --workers 2",
            "parley attack table cheng2019-turns --dialogues 100 --run runs/attack-table-turns",
            "parley attack table demo --run runs/demo-table",
        ),
        reports=True,
    ),
    Entry(
        ("reproduce", "cheng2019"),
        "tables 2, 6 and 7 of Cheng et al. 2019 from the corpus on, several trainings, beside the published figures",
        "engine.jobs.negotiation.reproduction:REPRODUCE_CHENG2019",
        (
            "parley reproduce cheng2019 --workers 2 --out docs/results/cheng2019-tables.md",
            "parley reproduce cheng2019 paper --seeds 5 --workers 8",
            "parley reproduce cheng2019 demo               # the embedded corpus, one training",
        ),
        reports=True,
    ),
    Entry(
        ("attack", "ranking"),
        "edit replies under a budget of queries so that rankers put them where they do not belong",
        "engine.jobs.retrieval.attack:ATTACK_RANKING",
        (
            "parley attack ranking                         # TF-IDF on the built-in help desk, in seconds",
            "parley attack ranking li2019 --model runs/matcher,bm25 --method greedy,beam,gradient --workers 2",
            "parley attack ranking --model mine.py:Ranker --goal demote --edits 2 --budget 100 --moves synonym",
        ),
        reports=True,
    ),
    Entry(
        ("search",),
        "find inputs that make a dialogue model say given sentences (gibbs-enum and others)",
        "engine.jobs.triggers.search:SEARCH",
        (
            "parley search --model runs/seq2seq --targets mal --hit o-sample-min-k1 --workers 2",
            "parley search quick --model runs/seq2seq --lm runs/lm --targets mal --hit io-sample-min-k1",
            "parley search compare --model runs/seq2seq --targets normal --hit o-greedy --method hotflip",
        ),
        reports=True,
    ),
    Entry(
        ("search", "table"),
        "every list of targets on one model or several, beside the published figures",
        "engine.jobs.triggers.table:SEARCH_TABLE",
        (
            "parley search table --model runs/seq2seq --lm runs/lm --published ubuntu --workers 2",
            "parley search table quick --model runs/attention,runs/last-h --lm runs/lm --lists normal,mal",
            "parley search table demo --run runs/demo-search",
        ),
        reports=True,
    ),
    Entry(
        ("search", "universal"),
        "one input for many prompts of a chat model, tried behind held-out ones, beside random inputs and none",
        "engine.jobs.triggers.universal:SEARCH_UNIVERSAL",
        (
            "parley search universal --model hf:models/chat --targets pairs.csv --set hugging_face.end=false",
            "parley search universal gibbs --model gguf:chat.gguf --targets pairs.jsonl --held-out 0.3 --workers 2",
            "parley search universal quick --model hf:models/chat --targets pairs.csv --set success.by=no-refusal",
        ),
        reports=True,
    ),
    Entry(
        ("search", "text"),
        "evolve inputs of a chat model whose replies alone are seen, until it says given sentences",
        "engine.jobs.triggers.text_search:SEARCH_TEXT",
        (
            "parley search text --model openai:http://127.0.0.1:8000/v1#served --targets pairs.csv",
            "parley search text --model mine.py:reply --targets mal --set search.max_queries=500",
            "parley search text quick --model gguf:chat.gguf --targets pairs.csv --set success.by=no-refusal",
        ),
        reports=True,
    ),
    Entry(
        ("search", "transfer"),
        "type triggers that searches found to other chat models, whose text is all that is seen of them",
        "engine.jobs.triggers.transfer:SEARCH_TRANSFER",
        (
            "parley search transfer --searches runs/search --model hf:models/chat,gguf:other.gguf",
            "parley search transfer --searches runs/search --model openai:http://127.0.0.1:8000/v1#served --found all",
            "parley search transfer --searches runs/search-universal --model mine.py:reply --set success.by=no-refusal",
        ),
        reports=True,
    ),
    Entry(
        ("search", "enumerate"),
        "try every input of a small model of characters, and count which words it says",
        "engine.jobs.triggers.enumeration:SEARCH_ENUMERATE",
        (
            "parley search enumerate --model runs/characters --workers 2",
            "parley search enumerate demo --model runs/characters",
            "parley search enumerate --model runs/characters --letters aeioustrn --max-length 4",
        ),
    ),
    Entry(
        ("minmax",),
        "adversarial training by rounds: adversary, target, and fresh adversaries as the measure (RLlib)",
        "engine.jobs.negotiation.minmax:MINMAX",
        (
            "parley minmax --target runs/rl --partner runs/negotiator --judge runs/negotiator",
            "parley minmax population --target runs/rl --env-runners 8 --address 10.0.0.1:6379",
            "parley minmax demo --seeds 3 --trainers 2 --run runs/demo-minmax",
        ),
        reports=True,
    ),
    Entry(
        ("minmax", "replies"),
        "train a generator and a discriminator against each other (RLlib)",
        "engine.jobs.generation.minmax:MINMAX_REPLIES",
        (
            "parley minmax replies                         # ten rounds on the built-in help desk",
            "parley minmax replies li2017 --start runs/dialogue --discriminator runs/discriminator",
            "parley minmax replies --start runs/seq2seq --method reinforce --reward constant",
        ),
        reports=True,
    ),
    Entry(
        ("minmax", "friends"),
        "harden a bot that looks for friends against liars, round by round (RLlib)",
        "engine.jobs.collaboration.minmax:MINMAX_FRIENDS",
        (
            "parley minmax friends demo                    # a tiny DynoNet and its liars, a few minutes",
            "parley minmax friends --model runs/dynonet --rounds 2 --run runs/minmax-dynonet",
            "parley minmax friends small --set game.lies=5 --set learning.updates=80",
        ),
        reports=True,
    ),
    Entry(
        ("minmax", "ranking"),
        "harden a ranker by rounds: an editing policy, the ranker, and what is left to find (RLlib)",
        "engine.jobs.retrieval.minmax:MINMAX_RANKING",
        (
            "parley minmax ranking                         # a tiny SMN, the built-in help desk",
            "parley minmax ranking --model runs/matcher --rounds 3 --run runs/minmax-matcher",
            "parley minmax ranking li2019 --set hardening.max_epochs=3",
        ),
        reports=True,
    ),
    Entry(
        ("minmax", "triggers"),
        "harden a Hugging Face model against triggers by rounds: search, train, search again, beside a control",
        "engine.jobs.triggers.minmax:MINMAX_TRIGGERS",
        (
            "parley minmax triggers --model hf:MODEL --targets rude.txt",
            "parley minmax triggers quick --model hf:MODEL --rounds 2 --workers 2",
            "parley minmax triggers demo --model hf:MODEL --run runs/demo-hardening",
        ),
        reports=True,
    ),
    Entry(
        ("evaluate", "exploitability"),
        "train fresh adversaries against a frozen target and measure what they gain (RLlib)",
        "engine.jobs.negotiation.exploitability:EVALUATE_EXPLOITABILITY",
        (
            "parley evaluate exploitability --target runs/rl --seeds 3 --snapshots 3 --trainers 2",
            "parley evaluate exploitability --target runs/minmax --speaker runs/rl --set reinforce.dialogues=32000",
            "parley evaluate exploitability demo --run runs/demo-exploitability",
        ),
    ),
    Entry(
        ("evaluate", "population"),
        "play all targets of a campaign against all adversaries: payoffs, mixtures, ratings (RLlib for fresh adversaries)",
        "engine.jobs.negotiation.population:EVALUATE_POPULATION",
        (
            "parley evaluate population runs/minmax --workers 2",
            "parley evaluate population psro runs/minmax --meta nash --num-fresh 3 --run runs/population-fresh",
            "parley evaluate population --targets scripted,scripted-tough,runs/rl --dialogues 200",
        ),
        reports=True,
        argument="CAMPAIGN",
    ),
    Entry(
        ("evaluate", "robustness"),
        "what a response model answers to perturbed contexts, before and after training against them",
        "engine.jobs.perturb.robustness:EVALUATE_ROBUSTNESS",
        (
            "parley evaluate robustness --model runs/seq2seq --published niu2018 --workers 2",
            "parley evaluate robustness quick --model runs/seq2seq --trained runs/adversarial --strategies random-swap",
            "parley evaluate robustness demo --model runs/demo/model",
        ),
        reports=True,
    ),
    Entry(
        ("evaluate", "ranking"),
        "how well rankers choose a reply among candidates, as they are and under fixed attacks",
        "engine.jobs.retrieval.ranking:EVALUATE_RANKING",
        (
            "parley evaluate ranking --limit 100           # TF-IDF and BM25 on the built-in help desk",
            "parley evaluate ranking li2019 --model runs/smn,bm25 --workers 2",
            "parley evaluate ranking --model mine.py:Ranker --corpus dailydialog_pp --rules iiw,copy-1",
        ),
        reports=True,
    ),
    Entry(
        ("evaluate", "adversarial"),
        "whether judges tell the replies of systems from those of people, and whether to trust the judges",
        "engine.jobs.generation.adversarial:EVALUATE_ADVERSARIAL",
        (
            "parley evaluate adversarial                   # the published sample, 768 sources",
            "parley evaluate adversarial --human people.tsv --machine beam.tsv --machine sampling.tsv --workers 2",
            "parley evaluate adversarial --human people.tsv --machine mine.tsv --judges svm-unigram,mine.py:Judge",
        ),
        reports=True,
    ),
    Entry(
        ("evaluate", "generation"),
        "trainings of a generator beside their controls and the generator that they start from, in one table",
        "engine.jobs.generation.table:EVALUATE_GENERATION",
        (
            "parley evaluate generation                    # ten rounds a row, the built-in help desk",
            "parley evaluate generation li2017 --start runs/dialogue --trainers 2",
            "parley evaluate generation --start runs/seq2seq --rows greedy,sample,regs-mc,forced,constant --num-trainings 3",
        ),
        reports=True,
    ),
    Entry(
        ("evaluate", "collaboration"),
        "how often two bots that mishear each other find the friend both have",
        "engine.jobs.collaboration.evaluate:EVALUATE_COLLABORATION",
        (
            "parley evaluate collaboration quick           # scripted bots, 100 scenarios",
            "parley evaluate collaboration --model runs/dynonet --strategies all --scenarios 1000 --workers 2",
            "parley evaluate collaboration --model mine.py:Bot --strategies confusing-entity,random-swap",
        ),
        reports=True,
    ),
    Entry(
        ("perturb", "audit"),
        "how much strategies change, how it reads, and lines of each for a person to label",
        "engine.jobs.perturb.audit:PERTURB_AUDIT",
        (
            "parley perturb audit antonym --corpus ubuntu_irc",
            "parley perturb audit should-not-change --corpus mine.tsv --limit 2000 --workers 2",
            "parley perturb audit demo                     # seconds, the built-in help desk and lexicon",
        ),
        reports=True,
        argument="STRATEGIES",
    ),
    Entry(
        ("sweep",),
        "turn the knobs of an attack or a training, many trials at a time (Ray Tune)",
        "tune.sweep:SWEEP",
        (
            "parley sweep demo                             # seconds, without a model",
            'parley sweep gibbs-enum --num-trials 50 --base "model=runs/seq2seq lm=runs/lm" --trial-workers 1',
            'parley sweep rl-attack --num-trials 40 --base "target=runs/negotiator" --address 10.0.0.1:6379',
        ),
        reports=True,
    ),
)


def find(name: str) -> Entry:
    """The entry of a job.

    Args:
        name: what its run folders carry, such as "train-negotiator".

    Raises:
        RunError: no job is called that.
    """
    for entry in ENTRIES:
        if "-".join(entry.words) == name:
            return entry
    from envs.core.errors import RunError

    raise RunError("no job of this version is called so", got=name, fix="use the version of Parley that made the run")
