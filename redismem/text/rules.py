"""Standing rules and preferences that users tell, such as "always give me the price in Swiss francs". No I/O."""

from __future__ import annotations

from collections.abc import Set
from typing import TypeVar

from redismem.text.patterns import searcher
from redismem.text.stems import QUESTION_STEMS, stems

T = TypeVar("T")

# A newer rule replaces an older one if it shares this part of its subject, and at least this many stems.
_SAME, _SAME_COUNT = 0.5, 2
# Cues of a rule or preference that holds until it is withdrawn. Only words of users count: an assistant also advises
# "always", and a habit ("we always liked it") is no rule.
_is_rule = searcher(
    r"(?i)(?:^|\W)(?:from now on|from here on|going forward|in future,|until further notice|by default|as a rule|"
    r"(?:whenever|every time|each time|any time|anytime) (?:i|you|we)|(?:when|if) i (?:ask|say|mention|request|"
    r"tell you)|"
    r"i(?:'d|’d| would)? (?:always |strongly |much |really )?prefer|i(?:'d|’d| would) rather|i (?:always|never|"
    r"only) want|"
    r"(?:please|should|must|want you to|like you to) (?:always|never)|"
    r"(?:don't|don’t|do not|never) ever|(?:please )?(?:stop|avoid|don't|don’t|do not) (?:us(?:e|ing)|call(?:ing)?|"
    r"suggest(?:ing)?|recommend(?:ing)?|mention(?:ing)?|includ(?:e|ing)|giv(?:e|ing)|send(?:ing)?|add(?:ing)?|"
    r"ask(?:ing)?)|"
    r"(?:please )?(?:call|address) me|refer to me|my pronouns|(?:make sure|keep in mind|remember) (?:to|that (?:i|"
    r"you))|"
    r"you (?:no longer|can stop|may stop|need not|needn't|don't have to|don’t have to)|forget (?:about )?(?:the|"
    r"my) rule|"
    r"(?:answer|reply|respond) (?:to )?me in|only (?:recommend|suggest|show me|give me)|i want (?:all|every|"
    r"each)|stick to|"
    r"every (?:reply|answer|summary|email) should|in all (?:my|your)|don't bother|don’t bother|no \w{1,20},? please|"
    r"i(?:'m|’m| am) (?:a )?(?:vegan|vegetarian|allergic)|i (?:can't|can’t|cannot) stand|i like my|"
    # German
    r"ab jetzt|ab sofort|von nun an|künftig|in zukunft|grundsätzlich|bis auf weiteres|(?:wenn|falls|sobald) ich .{0,60}"
    r"(?:frage|bitte|sage|erwähne)|jedes mal,? wenn|immer,? wenn (?:ich|du)|ich bevorzuge|ich ziehe .{1,60} vor|"
    r"mir (?:ist|sind|wäre) .{1,60} lieber|ich (?:möchte|will|hätte|mag|brauche) .{0,60}(?:immer|nie|lieber|nur)|"
    r"(?:bitte|du|sollst|mir|mich|dann) (?:immer|nie|niemals|stets)|ich will keine?n?|nenne? mich|sprich mich|"
    r"du (?:musst|"
    r"brauchst) .{1,60} nicht mehr|"
    # Spanish and Portuguese
    r"a partir de ahora|de ahora en adelante|en adelante|en el futuro|cada vez que|siempre que|"
    r"(?:cuando|si) (?:te )?(?:pregunte|pida|diga|mencione)|prefiero|preferiría|ll[áa]mame|(?:dame|dime|usa|"
    r"quiero) siempre|"
    r"siempre (?:quiero|dame|dime|usa)|(?:nunca|no) me (?:des|digas|propongas|llames|sugieras|recomiendes|hables)|"
    r"a partir de agora|de agora em diante|daqui em diante|(?:quando|se) eu (?:perguntar|pedir|disser)|sempre que|"
    r"prefiro|preferiria|me cham[ae]|(?:quero|use) sempre|sempre (?:quero|use)|nunca me (?:dê|diga|sugira|chame)|"
    # French and Italian
    r"à partir de maintenant|dorénavant|désormais|à l'avenir|à l’avenir|chaque fois que|(?:quand|lorsque|si) je "
    r"(?:te |vous )?(?:demande|dis|parle)|je préfère|je préférerais|j'aimerais mieux|appelle[- ]moi|appelez[- ]moi|"
    r"(?:dis|donne|utilise|mets|donnez|utilisez)(?:-moi)? toujours|ne me .{1,20} (?:jamais|plus)|"
    r"d'ora in poi|d’ora in poi|da ora in poi|ogni volta che|quando (?:ti )?(?:chiedo|dico)|preferisco|preferirei|"
    r"chiamami|(?:dammi|usa|voglio) sempre|non .{1,20} mai|"
    # Russian
    r"отныне|впредь|с этого момента|теперь всегда|(?:когда|если) я (?:спрашиваю|спрошу|прошу|попрошу|говорю|скажу)|"
    r"каждый раз,? когда|всякий раз|я предпочитаю|мне (?:больше|лучше) нравится|я бы предпоч\w+|(?:называй|зови|"
    r"зовите)(?:те)? меня|"
    r"(?:пожалуйста|мне|меня|ты),? (?:всегда|никогда)|никогда не (?:предлагай|называй|пиши|давай|говори|"
    r"советуй))(?:\W|$)|"
    # A sentence that begins with the command.
    r"(?:^|[.!?:;,\n–—-]\s*)(?:always|never)\W|"
    r"从现在起|从现在开始|以后(?:都|请|不)|今后|每当|每次(?:我|你)|当我问|我问.{0,20}时|我更喜欢|我偏好|我宁愿|叫我|称呼我|请(?:总是|始终|永远)|"
    r"请?(?:永远)?不要再|これから|今後|ほうがいい|(?:いつも|必ず|常に).{1,40}(?:ください|して|ほしい)|と呼んで|決して|二度と|"
    r"من الآن فصاعدا|من الآن فصاعدًا|كلما|عندما أسأل|إذا سألت|أفضّ?ل|نادني|دائما ما|لا .{1,20} أبدا|"
    r"מעכשיו|מהיום והלאה|בכל פעם ש|כשאני שואל|אני מעדיפ|תקרא לי|תמיד ת|לעולם אל|"
    r"अब से|आज से|जब भी|जब मैं पूछ|मुझे .{1,30} पसंद|मुझे .{1,20} बुला|हमेशा|कभी (?:मत|नहीं)",
)
# Words that rules of any subject share, as stems.
_RULE_WORDS = frozenset(
    stems(
        "always never ever when whenever ask say tell give want prefer rather please call make sure use every each "
        "any now time like need user more over if no long stop immer nie wenn frage bitte nenne jetzt ab jede "
        "jedem jeden mich mir möchte bevorzuge lieber siempre nunca cuando pregunte dame quiero prefiero cada "
        "ahora partir toujours jamais quand demande préfère chaque maintenant всегда никогда когда"
    )
)


def is_rule(text: str) -> bool:
    """True if a user's text may tell a rule or preference that holds from now on."""
    return _is_rule(text)


def subject_of(rule: str) -> set[str]:
    """Return the stems of a rule that tell its subject."""
    return set(stems(rule)) - _RULE_WORDS - QUESTION_STEMS


def replaces(older: Set[T], newer: Set[T]) -> bool:
    """True if a newer rule has the subject of an older one: it shares half of its stems, and at least two."""
    shared_count = len(older & newer)
    return shared_count >= _SAME_COUNT and shared_count >= _SAME * len(older)
