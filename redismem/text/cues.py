"""Cue words of decisions, preferences and corrections. No I/O."""

from __future__ import annotations

from redismem.text.patterns import searcher

# The Rust engine, because Python's `re` takes a hundred times as long for alternatives of many words. A pattern has
# `(?:^|\W)` instead of `\b`, for which the engine takes fifty times as long in a text that is not ASCII.

# Cues of decisions, preferences and promises, and of corrections. In a language without cues here, decisions weigh as
# much as other sentences.
_is_decision = searcher(
    r"(?i)(?:^|\W)(?:agree|approv|book|cancel|chang|choos|chose|confirm|decid|deliver|must|need|never|paid|plan|prefer|promis|"
    r"refund|refus|remember|schedul|favou?rite|allergi|always|hate|love|"
    r"entscheid|entschied|bevorzug|lieblings|versproch|gekauft|decidi|prefier|promet|favorit|compr|préfèr|préfér|décid|"
    r"prefir|решил|предпоч|обеща|любим|куп)|"
    r"决定|喜欢|过敏|预约|決め|好き|予約|قرر|أفضل|حساسية|החלט|מעדיפ|पसंद",
)
_is_correction = searcher(
    r"(?i)(?:^|\W)(?:correction|instead of|no longer|not .{1,20} but|"
    r"changed? (?:my|our|his|her|their|of) (?:mind|plan)s?|moved (?:it|my|the|our)|switched|i meant|i mean|"
    r"fell through|(?:my|our|his|her|their) new|quit|"
    r"korrektur|statt|stattdessen|nicht mehr|geändert|verschoben|verlegt|gekündigt|"
    r"(?:meine|unsere) neue|corrección|en vez de|ya no|cambio de|cambiaron|finalement|désormais|ne .{1,20} plus|mudou|"
    r"não .{1,20} mais|поправк\w*|вместо|больше не|перен[её]с\w*|измен\w*|передумал\w*)(?:\W|$)|"
    r"(?:^|\W)now(?:[.,;!]|$)|^(?:now|actually)(?:\W|$)|"
    r"更正|不再|改|换工作|搬到|訂正|変更|やっぱり|تصحيح|بدلا|لم تعد|لم يعد|تغير|תיקון|במקום|כבר לא|बदल",
)
# Cues that may mean a correction: they add no weight to a sentence, but reduce the weight of the one it contradicts.
_is_change = searcher(
    r"(?i)(?:^|\W)(?:now|new|anymore|any more|jetzt|neue[nrs]?|ahora|nuev[oa]|maintenant|nouve\w+|agora|теперь|нов\w+)"
    r"(?:\W|$)|现在|今は|新し|الآن|עכשיו|अब ",
)


def cue_of(text: str) -> str:
    """Return the cue of a sentence: `corrects`, `decides`, `changes` (perhaps a correction), or ""."""
    if _is_correction(text):
        return "corrects"
    if _is_decision(text):
        return "decides"
    return "changes" if _is_change(text) else ""
