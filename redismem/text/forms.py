"""Irregular forms of words, which stemming keeps apart, so that a question with "go" finds "went". No I/O.

Only a question looks them up: the index has the words as they were said.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from redismem.text.stems import QUESTION_STEMS, stems

# Per line, forms of words, separated by commas. Forms that are a common word of another meaning are left out.
_FORMS = """
arise arose arisen, awake awoke awoken, become became, begin began begun, bend bent, bite bit bitten, bleed bled,
blow blew blown, break broke broken, breed bred, bring brought, build built, burn burnt, buy bought, catch caught,
choose chose chosen, cling clung, come came, creep crept, deal dealt, dig dug, draw drew drawn, dream dreamt,
drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed, feel felt, fight fought, find found,
flee fled, fly flew flown, forbid forbade forbidden, forget forgot forgotten, forgive forgave forgiven,
freeze froze frozen, get got gotten, give gave given, go went gone, grow grew grown, hang hung, hear heard,
hide hid hidden, hold held, keep kept, kneel knelt, know knew known, lead led, lean leant, learn learnt, leave left,
lend lent, light lit, lose lost, make made, mean meant, meet met, mistake mistook mistaken, overcome overcame,
pay paid, prove proven, ride rode ridden, ring rang rung, rise rose risen, run ran, see saw seen, seek sought,
sell sold, send sent, sew sewn, shake shook shaken, shine shone, shoot shot, show shown, shrink shrank shrunk,
sing sang sung, sink sank sunk, sit sat, sleep slept, slide slid, speak spoke spoken, spell spelt, spend spent,
spill spilt, spin spun, spring sprang sprung, stand stood, steal stole stolen, stick stuck, sting stung,
strike struck, strive strove, swear swore sworn, sweep swept, swim swam swum, swing swung, take took taken,
teach taught, tear tore torn, think thought, throw threw thrown, understand understood, wake woke woken,
wear wore worn, weave wove woven, weep wept, win won, withdraw withdrew withdrawn, write wrote written
child children, man men, woman women, person people, foot feet, tooth teeth, mouse mice, goose geese, wife wives,
life lives, knife knives, leaf leaves, half halves, shelf shelves, wolf wolves, thief thieves, loaf loaves
colour color, favourite favorite, neighbour neighbor, centre center, theatre theater, grey gray, mum mom,
programme program, metre meter, litre liter, jewellery jewelry, cheque check
beginnen begann begonnen, beißen biss gebissen, bekommen bekam, bieten bot geboten, bitten bat gebeten,
bleiben blieb geblieben, brechen brach gebrochen, brennen brannte gebrannt, bringen brachte gebracht,
denken dachte gedacht, essen aß gegessen, fahren fuhr gefahren fährt, fallen fiel gefallen fällt,
fangen fing gefangen, finden fand gefunden, fliegen flog geflogen, frieren fror gefroren, geben gab gegeben gibt,
gehen ging gegangen geht, gewinnen gewann gewonnen, greifen griff gegriffen, halten hielt gehalten, heißen hieß,
helfen half geholfen hilft, kennen kannte gekannt, kommen kam gekommen, laden lud geladen, laufen lief gelaufen,
leihen lieh geliehen, lesen las gelesen liest, liegen lag gelegen, lügen log gelogen, nehmen nahm genommen nimmt,
nennen nannte genannt, reiten ritt geritten, rufen rief gerufen, schlafen schlief geschlafen,
schlagen schlug geschlagen, schließen schloss geschlossen, schneiden schnitt geschnitten,
schreiben schrieb geschrieben, schwimmen schwamm geschwommen, sehen sah gesehen sieht, singen sang gesungen,
sitzen saß gesessen, sprechen sprach gesprochen spricht, springen sprang gesprungen, stehen stand gestanden,
steigen stieg gestiegen, sterben starb gestorben, streiten stritt gestritten, tragen trug getragen,
treffen traf getroffen trifft, trinken trank getrunken, tun tat getan, vergessen vergaß, verlieren verlor verloren,
verstehen verstand verstanden, wachsen wuchs gewachsen, waschen wusch gewaschen, werfen warf geworfen,
wissen wusste gewusst weiß, ziehen zog gezogen
abrir abrió abierto, andar anduvo, caer cayó, conducir condujo, conocer conozco, creer creyó, dar dio dado,
decir dijo dicho, dormir durmió, escribir escribió escrito, hacer hizo hecho, ir fue ido voy va, leer leyó leído,
morir murió muerto, oír oyó, pedir pidió, perder perdió pierde, poder pudo puede, poner puso puesto,
preferir prefirió prefiere, querer quiso quiere, romper rompió roto, saber supo, salir salió, seguir siguió,
sentir sintió, servir sirvió, tener tuvo tiene, traducir tradujo, traer trajo, venir vino viene, ver vio visto,
vestir vistió, volver volvió vuelto vuelve, jugar jugó juega, empezar empezó empieza, comenzar comenzó comienza,
encontrar encontró encuentra, contar contó cuenta, mostrar mostró muestra
aller allé va, apprendre appris, attendre attendu, boire bu, choisir choisi, comprendre compris, conduire conduit,
connaître connu, courir couru, croire cru, découvrir découvert, devenir devenu, devoir dû, dire dit, dormir dormi,
écrire écrit, entendre entendu, faire fait, finir fini, lire lu, mettre mis, mourir mort, naître né, offrir offert,
ouvrir ouvert, partir parti, perdre perdu, peindre peint, pouvoir pu, prendre pris, recevoir reçu, rendre rendu,
répondre répondu, savoir su, sentir senti, sortir sorti, suivre suivi, tenir tenu, vendre vendu, venir venu,
vivre vécu, voir vu, vouloir voulu
"""


def other_forms(stem: str) -> Sequence[str]:
    """Return the stems of the irregular forms of a word, in English, German, Spanish and French."""
    return _others().get(stem, ())


@cache  # built with the first question, so that nothing else waits for it
def _others() -> dict[str, tuple[str, ...]]:
    others: dict[str, dict[str, None]] = {}
    for forms in ",".join(_FORMS.strip().splitlines()).split(","):
        telling = [stem for stem in dict.fromkeys(stems(forms)) if stem not in QUESTION_STEMS]
        for stem in telling:
            others.setdefault(stem, {}).update(dict.fromkeys(telling))
    return {stem: tuple(each for each in forms if each != stem) for stem, forms in others.items() if len(forms) > 1}
