"""Errors that people make in written English, by kind. Data, written for this project.

Not here: what corpora of corrections add (`corrections.py`), where a kind may occur (`grammar.py`).
"""

from __future__ import annotations

AGREEMENT = {
    "is": ("are",), "are": ("is",), "was": ("were",), "were": ("was",), "has": ("have",), "have": ("has",), "does": ("do",),
    "do": ("does",), "'s": ("are",), "'re": ("is",),
}  # fmt: skip
"""Forms of verbs that do not agree with the subjects of one another."""

PREPOSITIONS = {
    "in": ("on", "at"), "on": ("in", "at"), "at": ("in", "on"), "for": ("to",), "with": ("by",),
    "into": ("in", "to"), "since": ("from",), "during": ("in",), "about": ("of", "on"),
}  # fmt: skip
"""Prepositions and those that learners write instead."""

CONFUSED = {
    "their": ("there",), "there": ("their",), "your": ("you 're",), "you 're": ("your", "ur"), "its": ("it 's",),
    "it 's": ("its",), "they 're": ("their", "there"), "too": ("to",), "than": ("then",), "then": ("than",), "lose": ("loose",),
    "loose": ("lose",), "whether": ("wether",), "quite": ("quiet",), "quiet": ("quite",), "could have": ("could of",),
    "should have": ("should of",), "would have": ("would of",), "could 've": ("could of",), "should 've": ("should of",),
    "would 've": ("would of",), "whose": ("who 's",), "who 's": ("whose",), "affect": ("effect",), "effect": ("affect",),
    "advice": ("advise",), "piece": ("peace",), "a lot": ("alot",), "off": ("of",), "let 's": ("lets",), "much": ("many",),
    "many": ("much",), "fewer": ("less",), "information": ("informations",), "software": ("softwares",),
    "hardware": ("hardwares",), "does n't": ("do n't", "doesnt"), "has n't": ("have n't", "hasnt"),
}  # fmt: skip
"""Words that are taken for one another, and endings where there are none."""

APOSTROPHES = {
    "do n't": "dont", "did n't": "didnt", "ca n't": "cant", "wo n't": "wont", "is n't": "isnt", "are n't": "arent",
    "was n't": "wasnt", "could n't": "couldnt", "would n't": "wouldnt", "should n't": "shouldnt", "have n't": "havent",
    "i 'm": "im", "i 've": "ive", "that 's": "thats", "what 's": "whats", "there 's": "theres", "you 've": "youve",
}  # fmt: skip
"""Contractions as they are written in a hurry."""

MISSPELLINGS = {
    "about": ("abuot",), "again": ("agian",), "already": ("allready",), "always": ("allways",), "anything": ("anyting",),
    "available": ("availible",), "because": ("becuase", "becasue"), "before": ("befor",), "beginning": ("begining",),
    "believe": ("beleive",), "connect": ("conect",), "correctly": ("corectly",), "definitely": ("definately",),
    "different": ("diffrent",), "does": ("dose",), "every": ("evry",), "from": ("form",), "happened": ("happend",),
    "just": ("jsut",), "know": ("konw",), "message": ("mesage",), "necessary": ("neccessary",), "occurred": ("occured",),
    "people": ("poeple",), "please": ("plese",), "possible": ("posible",), "problem": ("probelm",), "probably": ("probaly",),
    "really": ("realy",), "receive": ("recieve",), "separate": ("seperate",), "should": ("shoud",), "some": ("som",),
    "something": ("somthing",), "successfully": ("succesfully",), "thanks": ("thnaks",), "the": ("teh",), "their": ("thier",),
    "there": ("ther",), "tomorrow": ("tommorow",), "try": ("tyr",), "unfortunately": ("unfortunatly",), "until": ("untill",),
    "usually": ("usualy",), "want": ("wnat",), "weird": ("wierd",), "which": ("wich",), "with": ("wiht",), "work": ("wrok",),
    "would": ("woudl",), "writing": ("writting",),
}  # fmt: skip
"""Words and how they are misspelt."""
