"""Published figures of Li et al. 2019 (tables 3 to 6), for comparison with measured ones.

The corpora are the Ubuntu Dialogue Corpus V1 and the Douban Conversation Corpus, in groups of ten. Rules have the names of the
project; the paper prints RLW as "RSW" in table 6 and MRFN as "MFRN".

Contradictions of the paper with itself, as printed:
  * the abstract's drops of R10@1 (38.3, 45.0 and 31.5 points) are none of table 3 (at most 38.4, 40.9 and 40.4);
  * MRFN under RSW: R10@1 .569 in table 3, .529 in table 5; and .569 beside R2@1 .853 stands far from the other models' rows;
  * MRFN trained against RLW_L/2: "from 76.3 % to 0.6 %" in the text, .060 in table 6;
  * the mean drops under RLW_L/2 and RLW_1 are 70.2 and 63.8 points in the text, 68.4 and 64.2 by tables 4 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

Figures = Mapping[str, float]
"""By the name of the metric, as `ranks.GroupMetrics.values` has them."""

MODELS = ("smn", "dam", "mrfn")
CLEAN = "base"
"""The name of the condition without a rule."""
_UBUNTU = ("r2@1", "r@1", "r@2", "r@5")
_DOUBAN = ("map", "mrr", "p@1", "r@1", "r@2", "r@5")


@dataclass(frozen=True)
class PublishedTraining:
    """The published result of a training against one rule, R10@1 and A10@1 on Ubuntu.

    Args:
        clean: on clean test examples, R10@1.
        attacked: on test examples under the rule, R10@1 where the rule keeps labels, else A10@1.
    """

    clean: float
    attacked: float


def _table(rows: str) -> Mapping[str, Mapping[str, Mapping[str, Figures]]]:
    """Lines of model, rule, the figures of Ubuntu, a bar, the figures of Douban."""
    tables: dict[str, dict[str, dict[str, Figures]]] = {"ubuntu": {}, "douban": {}}
    for line in rows.strip().splitlines():
        head, douban = line.split("|")
        model, rule, ubuntu = head.split(maxsplit=2)
        for corpus, names, text in (("ubuntu", _UBUNTU, ubuntu), ("douban", _DOUBAN, douban)):
            values = dict(zip(names, map(float, text.split()), strict=True))
            tables[corpus].setdefault(model, {})[rule] = MappingProxyType(values)
    return MappingProxyType(tables)


TABLE_3 = _table(
    """
smn  base .926 .726 .847 .961 | .529 .569 .397 .233 .396 .724
smn  iiw  .625 .345 .443 .622 | .389 .426 .231 .123 .233 .526
smn  rsw  .621 .342 .436 .621 | .374 .395 .165 .087 .225 .473
dam  base .938 .767 .874 .969 | .550 .601 .427 .254 .410 .757
dam  iiw  .629 .358 .447 .624 | .368 .403 .225 .113 .198 .493
dam  rsw  .637 .366 .461 .632 | .382 .407 .193 .109 .215 .484
mrfn base .945 .786 .886 .976 | .571 .617 .448 .276 .435 .783
mrfn iiw  .642 .382 .471 .642 | .386 .422 .244 .134 .232 .498
mrfn rsw  .853 .569 .722 .897 | .388 .419 .224 .128 .242 .497
"""
)
"""R_n@k, MAP, MRR and P@1 by corpus, model and rule."""

TABLE_4 = _table(
    """
smn  sow      .917 .711 .832 .953 | .533 .571 .388 .227 .401 .756
smn  rlw-half .908 .695 .820 .941 | .524 .567 .379 .221 .393 .733
smn  rlw-1    .903 .698 .812 .938 | .527 .563 .391 .223 .396 .751
smn  rnpv     .907 .685 .827 .932 | .505 .549 .355 .207 .368 .746
smn  ngr      .894 .589 .807 .926 | .213 .212 .076 .031 .062 .147
dam  sow      .933 .765 .866 .962 | .548 .587 .426 .250 .410 .758
dam  rlw-half .929 .734 .837 .947 | .539 .587 .406 .239 .400 .769
dam  rlw-1    .935 .736 .836 .952 | .544 .594 .423 .250 .401 .758
dam  rnpv     .921 .726 .832 .947 | .540 .581 .396 .241 .397 .781
dam  ngr      .907 .567 .814 .936 | .349 .297 .094 .065 .132 .346
mrfn sow      .942 .778 .884 .979 | .556 .603 .439 .258 .409 .783
mrfn rlw-half .931 .763 .857 .975 | .551 .602 .437 .262 .413 .758
mrfn rlw-1    .934 .767 .859 .963 | .552 .595 .426 .259 .411 .762
mrfn rnpv     .921 .754 .832 .951 | .522 .568 .409 .235 .388 .719
mrfn ngr      .873 .417 .711 .773 | .357 .304 .107 .079 .154 .378
"""
)
"""A_n@k, AAP, ARR and A@1 by corpus, model and rule."""


def _trainings(rows: str) -> Mapping[str, Mapping[str, PublishedTraining]]:
    """Lines of model, rule, clean, attacked."""
    trainings: dict[str, dict[str, PublishedTraining]] = {}
    for line in rows.strip().splitlines():
        model, rule, clean, attacked = line.split()
        trainings.setdefault(model, {})[rule] = PublishedTraining(float(clean), float(attacked))
    return MappingProxyType(trainings)


TABLE_5 = _trainings(
    """
smn  iiw .737 .458
smn  rsw .729 .406
dam  iiw .768 .486
dam  rsw .768 .434
mrfn iiw .791 .525
mrfn rsw .789 .596
"""
)
"""After training against a rule that keeps labels, by model and rule."""

TABLE_5_BEFORE: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "smn": {CLEAN: 0.726, "iiw": 0.345, "rsw": 0.342},
        "dam": {CLEAN: 0.767, "iiw": 0.358, "rsw": 0.366},
        "mrfn": {CLEAN: 0.786, "iiw": 0.382, "rsw": 0.529},
    }
)
"""R10@1 before training, as table 5 repeats it."""

TABLE_6 = _trainings(
    """
smn  sow      .723 .057
smn  rlw-half .728 .032
smn  rlw-1    .741 .105
smn  rnpv     .725 .047
dam  sow      .756 .124
dam  rlw-half .763 .047
dam  rlw-1    .759 .094
dam  rnpv     .763 .058
mrfn sow      .785 .058
mrfn rlw-half .790 .060
mrfn rlw-1    .789 .076
mrfn rnpv     .786 .042
"""
)
"""After training against a rule whose replies are new wrong ones, by model and rule."""
