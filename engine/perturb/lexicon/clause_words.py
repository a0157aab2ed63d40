"""The words that `clauses.py` knows. Data only, written for this project."""

from __future__ import annotations

from parley.engine.perturb.lexicon.lexicon import word_set

BREAKS = word_set(
    r"""
    . ? ! ; : ... , ( ) [ ] { } " ' - * / \ > < = | & + # ~ ^ _ @ :) :( ;) ;( :-) :-( ;-) :d :p ;d ;p and but or so then
    plus <eou>
    """
)
"""Marks and coordinators that end a clause."""
ADDING = word_set("and or")
"""Coordinators behind which a subordinate clause goes on."""
NEGATIONS = word_set(
    """
    n't not no nor never none nothing nobody nowhere neither without cannot hardly barely seldom rarely unless dont
    doesnt didnt isnt arent wasnt werent cant couldnt wont wouldnt shouldnt havent hasnt hadnt aint non nope nah doubt
    """
)
SUBORDINATORS = word_set(
    """
    if when whenever because cause cuz coz since while until till before after though although whether once as than like
    whatever whichever wherever whose unless incase except
    """
)
CLOSED = word_set("since than as until till before unless like once how whatever whichever wherever all")
"""Those behind which nothing is negated: "until it does n't boot" is hardly said."""
QUESTION_WORDS = word_set("how what where when which who why")
OPENINGS = word_set(
    """
    ok okay well yes yeah yep yup yea ya hi hello hey oh ah hm hmm hmmm heh lol sorry thanks thx please just also maybe
    perhaps now first anyway actually basically btw still too alright right cool great nice good interesting weird sure
    guys man dude ubuntu wow huh um uh er hehe haha yay nvm ps afaik iirc apparently obviously unfortunately fine
    """
)
"""Words before the beginning of a sentence."""
NOMINATIVE = word_set("i you he she we they u")
PLURAL = word_set("i you we they u these those people")
SUBJECTS = word_set(
    """
    i you u he she it we they this that these those there someone somebody everyone everybody everything something who
    """
)
ANYBODY = word_set("anyone anybody any anything")
MODALS = word_set("can could will would should must might may shall")
HAVE = word_set("have has had")
DO = word_set("do does did")
AUXILIARIES = word_set("am is are was were") | MODALS | HAVE | DO
CONTRACTED = word_set("'m 're 's 've 'd 'll")
CONTRACTIONS = {
    **{word: (word, "n't") for word in ("is", "are", "was", "were", "could", "would", "should")},
    "can": ("ca", "n't"),
    "will": ("wo", "n't"),
}
"""Auxiliaries that take "n't" in everyday speech."""
FINITE = {"have": "do", "has": "does", "had": "did", "do": "do", "does": "does", "did": "did"}
BASES = {"have": "have", "has": "have", "had": "have", "do": "do", "does": "do", "did": "do"}
BEFORE_IS = word_set("it that he she there this what who where everything something everyone someone")
MAY_OWN = word_set("everyone someone who")
BEHIND_IS = word_set("VBG VBN DT RB IN JJ PRP$")
DETERMINERS = word_set("a an the it this that to my your some any all these those them him her everything")
DEMONSTRATIVES = word_set("it this that these those something everything")
BEGIN_NOUNS = frozenset({"DT", "PR", "NN", "EX", "WD"})
"""The beginnings of tags that a subject begins with."""
ORDINALS = word_set("first second last next best worst most least only other")
RELATIVE_HEADS = word_set("all everything anything something nothing someone anyone everyone one ones")
"""Words behind which "i know" may be a relative clause."""
INNER = frozenset({"DT", "PR", "JJ"})
"""The beginnings of tags within a noun's phrase."""
ADVERBS = word_set(
    """
    just also really only always usually still even actually probably already simply recently finally currently
    generally basically sometimes ever often now first definitely certainly obviously apparently clearly totally fully
    completely all both guys please normally mostly literally seriously then
    """
)
BEFORE_NOT = word_set(
    """
    probably still definitely obviously apparently certainly actually possibly likely currently basically usually
    generally simply clearly maybe sometimes now normally
    """
)
"""Adverbs that stand before "not"."""
NEGATED_ADVERBS = word_set("always often only even ever simply fully completely all totally")
"""Adverbs that stand behind "n't"."""
NOT_NEGATED = word_set("rather better already")
"""Words behind an auxiliary that is left alone."""
BEHIND_WOULD = word_set("like love be have say")
PARTICIPLES = word_set(
    """
    been got gotten had done seen tried used made found heard read set put gone taken given written run come become
    forgotten lost broken chosen installed
    """
)
TAKE_CLAUSES = word_set(
    """
    think thinks thought say says said know knows knew hope sure guess mean means meant see assume assuming believe
    suppose wish bet notice noticed tell told suggest swear imagine figured figure wonder doubt forgot forget feel found
    heard
    """
)
"""Words behind which a subject may begin a clause."""
_OF_MINE = word_set("mean guess wonder hope wish bet suppose assume gather swear thank promise take forget fail hate")
_SAID = ("it comes", "you know", "you mean", "there you", "see you", "see ya", "go ahead", "have fun", "take care")
SAYINGS = frozenset({*(("i", verb) for verb in _OF_MINE), *(tuple(said.split()) for said in _SAID)})
"""Phrases that are not negated."""
NO_FULL_VERBS = word_set("be been being thank thanks welcome sorry ta i a s m d ve re ll doubt lack")
STATES = word_set(
    """
    seems looks works sounds depends means says makes needs appears shows gives comes feels happens helps
    """
)
"""Verbs that often stand without "it"."""
GERUNDS = word_set(
    """
    trying using having running looking installing getting working going doing booting asking wanting upgrading
    """
)
IMPERATIVES = word_set(
    """
    try use check see look go make get install type run help read open wait ask need google take give tell remove add
    paste download stop join put change find click press search set keep start edit define reboot want log follow copy
    create kill test restart watch reinstall delete remember configure upgrade boot unmount say note turn enter choose
    select burn plug unplug update compile format disable enable move switch leave buy close save write send pick let
    consider ensure pastebin skip grab extract replace uninstall explain show disconnect connect repeat stick uncomment
    reset
    """
)
NOUNS = word_set(
    """
    google help test paste log change search start download update edit open set format upgrade boot need run look show
    burn type copy plug press click note stick switch use join find try hold wait stop watch close write save select see
    """
)
"""Imperatives that are often nouns or the names of programs: only before a word that stands behind verbs."""
BEFORE_IMPERATIVES = word_set(". ? ! ; , ... ) :) ;) :d :p then so")
BEHIND_IMPERATIVES = word_set(
    """
    a an the it this that these those my your his their our me us them him her to for from with in into on at up down
    out off over through again if what how which whether some any all both another each one everything something someone
    anything that's using by via as and or there here away around <url> <path> xorg more
    """
)
VERBS = word_set(
    """
    accept access add advise agree allow answer appear apply ask assume attach believe blame boot break bring browse
    build burn buy call care change check choose claim click close come compile complain configure connect consider
    contain convert copy cost crash create cut decide define delete depend describe disable disagree display do download
    drop edit enable end enjoy enter execute exist expect explain extract fail feel figure find finish fix follow forget
    format freeze get give go google guess handle hang happen hate have hear help hit hold hope identify ignore include
    insist install intend join keep kill know lag launch lead learn leave let like list listen live load lock log look
    lose love make manage matter mean mention mess mind miss mount move need notice offer open order own partition paste
    pay pick ping play plug point post prefer press print provide pull purge push put quit read realize reboot recall
    receive recognize recommend redo refer refuse reinstall remember remove rename repeat replace reply report require
    resolve restart restore return run save say scan scroll search see seem select sell send set share show shut sit
    sleep solve sound speak specify start stay stick stop store suggest support suppose suspect swap switch take talk
    tell tend test think touch try turn type understand uninstall unmount unplug update upgrade upload use vary view
    wait wake walk wanna want watch wish wonder work worry write
    """
)
"""Verbs that are common in chats."""
UNCHANGING = word_set("put read set cut hit quit shut let cost")
"""Verbs whose past is their base form."""
