"""The words of the built-in lexicon: everyday English and a help desk's. Data only; `built_in.py` reads them.

Written for this project. A word may stand in several lists; where it does, the words around it decide.
"""

from __future__ import annotations

IRREGULAR = """
be was been            become became become    begin began begun       break broke broken      bring brought brought
build built built      buy bought bought       catch caught caught     choose chose chosen     come came come
cost cost cost         cut cut cut             do did done             draw drew drawn         drink drank drunk
drive drove driven     eat ate eaten           fall fell fallen        feed fed fed            feel felt felt
find found found       fly flew flown          forget forgot forgotten get got got             give gave given
go went gone           grow grew grown         hang hung hung          have had had            hear heard heard
hide hid hidden        hold held held          hurt hurt hurt          keep kept kept          know knew known
lay laid laid          lead led led            leave left left         lend lent lent          let let let
lie lay lain           light lit lit           lose lost lost          make made made          mean meant meant
meet met met           pay paid paid           put put put             read read read          ride rode ridden
ring rang rung         rise rose risen         run ran run             say said said           see saw seen
sell sold sold         send sent sent          set set set             shake shook shaken      shut shut shut
sing sang sung         sit sat sat             sleep slept slept       speak spoke spoken      spend spent spent
stand stood stood      steal stole stolen      stick stuck stuck       swear swore sworn       sweep swept swept
swim swam swum         take took taken         teach taught taught     tear tore torn          tell told told
think thought thought  throw threw thrown      undo undid undone       understand understood understood
wake woke woken        wear wore worn          win won won             write wrote written
"""
"""Verbs: base, past, participle. Forms of "be" are listed with the words of one tag."""

REGULAR = """
accept add agree allow answer appear arrive ask attach back bark beep believe belong blink block blur boot borrow burn busy
call cancel care carry change charge check choke clean clear click close collect complain confirm connect continue cook copy
count crackle crash cross crush delete deliver detach die disable disappear disconnect disturb download drop dry dust edit
empty enable end enjoy enter erase exchange exclude expire explain extend fail fill film filter finish fix flash flicker
fold follow freeze glow grind guess handle happen hate help hope hum include increase insert install jam join joke jump kill
know label last laugh learn like link list listen live load lock log look love lower mail manage mark marry measure mend
mention mind miss mount move mute name need note notice offer open order pack park pass paste phone pick plan plant play
please plug point post pour power press print promise pull push raise rattle reach reboot receive record refuse reinstall
release remember remind remove rename renew repair repeat replace reply report reset resolve rest restart restore return
ring rub save scan scroll search seem share shop show sign smell smoke solve sound spare spell spill squeak start stay step
stop store stripe suggest suppose swap switch talk taste test thank touch trust try turn type uninstall unlock unmute unpack
unplug update upgrade upload use vanish visit wait walk want warm warn wash watch wave whistle wipe wish wonder work worry
"""
"""Verbs with endings by rule."""

DOUBLING = """
ban beg cancel chat chop clip cut drag drop fit format get grab hug jam jog let log map nod pin ping plan plug rip rub run
scan set ship shop shut sit skip slip spin spot step stop swap swim tap tip trap travel trim unplug win wrap zip
"""
"""Verbs that double their last letter before -ed and -ing."""

NOUNS = """
account adapter address admin afternoon air alarm answer antenna application attachment backup badge bag bank battery
beginner bin blocks boss bottle box bread browser bug building bulb button cable calendar call camera cap capital car card
cartridge case cat cellar certificate chair chance channel charge charger chat child chip city clock cloth code coffee
colleague colour command company computer cook copier copy corner count country course cup customer daemon dark data day
default delete desk desktop device dirt disk display distance distro dock docking document dog door download drive driver
drum dust ear email end entry error evening exchange eye face fan fault file film filter finger flag floor folder font food
fool force form frame friday friend front fuse game glow green group guest hall hand handle hard hardware harm head
headphone headset health heat help hero hole holiday home hook hour house icon idea idiot image ink inside installation
internet invoice jam job joke junk kernel key keyboard kind kitchen lab label lamp laptop letter level library licence lid
life light line link list load lock login lot luck machine mail mailbox manager mark marker master mate matter meaning
meeting memory menu message meter microphone minute mistake mode model module monday money monitor month morning mouse mug
music name network news night noise noon note number office option order others outlet oven package page pair panel paper
part partition party password patience patient paw pen percent person phone photo phrase picture piece pin place plan
planner plant plate plenty plug pocket point port position post power press prince print printer problem process program
project projector question queue radio reason receiver record refund release reply report request resolution result right
robot roof room router rule safe sale saturday scanner screen script sender sentence server service session setting shape
sheet shelf shell shop shoulder side sign signal site size snail socket software song sound source space speaker speed spot
staff stage star start state station step stick stop store stranger street string stripe stuff subject summer sun sunday
switch system tab table talk tape task teacher team terminal test text thing thought thread thursday tie time tin title
today tomorrow tone toner tool top touch towel town track train tray trouble tuesday type umbrella update upgrade use user
version video view voice volume wall warning water way web wednesday week wheel wifi window winter wire wireless wizard
woman word work workshop world year yesterday zone
"""

PLURALS = {
    "child": "children", "foot": "feet", "knife": "knives", "life": "lives", "man": "men", "mouse": "mice", "person": "people",
    "shelf": "shelves", "tooth": "teeth", "wife": "wives", "woman": "women",
}  # fmt: skip

ADJECTIVES = """
able absent active afraid alive alone angry annoying available awake away awful bad bare basic beautiful best better big
black blank blue blurred bold boring brave brief bright broken brown busy calm careful careless certain cheap clean clear
clever close closed cold common complete complex cool correct corrupt crazy crossed current cute dangerous dark dead deaf
dear deep different difficult dim dirty dry dumb dying early easy empty enough evil exact expensive external faint fair
false familiar famous fast fat fatal faulty few fine firm first flat foreign free fresh friendly front full funny general
gentle glad good grateful great green grey half happy hard harmless healthy heavy helpful hidden high hot huge human hungry
ill important impossible incorrect internal junk kind large last late lazy left light little live local lonely long loose
lost loud low lucky mad main male manual many mild missing modern more most much muted narrow nasty near neat necessary
negative new next nice noisy normal odd official offline old online only open opposite orange other own pale past perfect
plain pleasant polite poor popular positive possible present private proper proud public quick quiet rare raw ready real
recent red remote rich right rough round rude sad safe same secret secure sensible serious shallow sharp short shut shy sick
silent silly similar simple single slow small smart smooth soft solid sorry sour spare special stable strange strict strong
stuck stupid such sure sweet tall terrible thick thin third tidy tight tiny tired total true twin ugly unable unhappy
unknown unsafe unsure upset urgent used useful useless usual vague valid visible warm weak weird wet white whole wide wild
wireless wise wonderful working worse worst worth wrong yellow young
"""

ADVERBS = """
again ago ahead almost alone already also always anyway apart around away back badly barely before carefully clearly closer
completely correctly downstairs early easily else even ever everywhere exactly far fast finally first gently hardly hence
here however immediately indeed instead just late later least loudly maybe mostly much nearly never not now nowhere often
once only outside perhaps poorly probably quickly quietly quite rarely rather really recently right seldom sharply simply
slowly so somewhere soon still straight suddenly surely terribly then there together too totally twice upstairs usually very
well wrongly yet
"""

COMPARISONS = """
bad worse worst             big bigger biggest          close closer closest        early earlier earliest
easy easier easiest         far farther farthest        fast faster fastest         few fewer fewest
good better best            great greater greatest      happy happier happiest      hard harder hardest
high higher highest         large larger largest        late later latest           light lighter lightest
little less least           long longer longest         loud louder loudest         low lower lowest
many more most              near nearer nearest         new newer newest            old older oldest
quick quicker quickest      quiet quieter quietest      rich richer richest         sad sadder saddest
safe safer safest           short shorter shortest      slow slower slowest         small smaller smallest
soft softer softest         strong stronger strongest   thick thicker thickest      thin thinner thinnest
tight tighter tightest      warm warmer warmest         weak weaker weakest         young younger youngest
"""
"""Adjectives and adverbs: plain form, comparative, superlative."""

FIXED = {
    "DT": "a an the this that these those each every some any no all both either neither another half",
    "PRP": "i you he she it we they me him us them one ones myself yourself himself herself itself ourselves yourselves"
    " themselves mine yours hers ours theirs nobody nothing somebody something anybody anything everybody everything"
    " someone anyone everyone",
    "PRP$": "my your his her its our their",
    "IN": "about above across after against along among around as at because before behind below beneath beside besides"
    " between beyond by during except for from if in inside into like near of on onto outside over past per since than"
    " though through till toward towards under underneath unless until upon via while with within without although"
    " whether",
    "RP": "off out up down",
    "TO": "to",
    "MD": "can could may might must shall should will would cannot ca wo sha 'll 'd",
    "CC": "and but or nor plus",
    "WP": "who whom what whoever whatever",
    "WDT": "which",
    "WP$": "whose",
    "WRB": "when where why how whenever wherever",
    "POS": "'s",
    "UH": "yes yeah ok okay hello hi hey oh please thanks bye goodbye welcome sorry wow well thank",
    "CD": "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen"
    " eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million dozen",
    "RB": "n't not",
    "VBP": "am are 'm 're 've",
    "VBZ": "is has does",
    "VBD": "was were did had",
    "VB": "be",
    "VBN": "been done",
    "VBG": "being",
    "NNP": "anna boris chen dora emil fatima tokyo paris ubuntu linux windows debian google",
    ".": ". ! ?",
    ",": ",",
    ":": ": ; ... -",
    "(": "( [ {",
    ")": ") ] }",
}
"""Words of one tag."""

OPPOSITE_NOUNS = """
answer question     beginner master     beginning end       black white         boss worker         bottom top
child adult         day night           entrance exit       evening morning     friend enemy        guest host
hero coward         inside outside      life death          light darkness      noise silence       noon midnight
past future         peace war           problem solution    sender receiver     success failure     summer winter
today tomorrow      truth lie           work rest           right left          input output        sale purchase
home office         start end           front back
"""
"""Pairs of nouns, in both directions; the other opposites stand in `opposites.py`."""
