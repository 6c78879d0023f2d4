"""What is hidden in a haystack: the published needles, and others like them to tune on.

The published ones are those of gkamradt/needle-in-a-haystack, version 2.0.0, needlehaystack/tasks/.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from random import Random

from longseal.tasks.words import random_uuid


@dataclass(frozen=True)
class Needle:
    """Sentences to hide, and the one question about them.

    Attributes:
        sentences: each is to stand in the haystack once.
        answer: a whole sentence that answers the question.
        expected: phrases that a right answer holds.
    """

    sentences: tuple[str, ...]
    question: str
    answer: str
    expected: tuple[str, ...]


_BEST_THING = (
    "The best thing to do in San Francisco is eat a sandwich and sit in Dolores Park "
    "on a sunny day."
)
_PIZZA = "the secret ingredients needed to build the perfect pizza"


def single(random: Random) -> Needle:
    """The published needle."""
    return Needle(
        (_BEST_THING,),
        "What is the best thing to do in San Francisco?",
        _BEST_THING,
        ("eat a sandwich and sit in Dolores Park",),
    )


def multi(random: Random) -> Needle:
    """The published three, which one question asks for."""
    return Needle(
        (
            f"Figs are one of {_PIZZA}.",
            f"Prosciutto is one of {_PIZZA}.",
            f"Goat cheese is one of {_PIZZA}.",
        ),
        f"What are {_PIZZA}?",
        f"The{_PIZZA[3:]} are figs, prosciutto and goat cheese.",
        ("figs", "prosciutto", "goat cheese"),
    )


def code(random: Random) -> Needle:
    """A UUID in the published sentence."""
    return _code("the secret code", random)


def other_single(random: Random) -> Needle:
    """A statement on any subject, about as long as the published one.

    As there, and as in SEAL's own, what the question says stands at the start.
    """
    question, statement = random.choice(_STATEMENTS)
    words = _draw(random)
    statement = statement.format(**words)
    key = re.search(r"\[(.+)]", statement)
    assert key
    plain = statement.replace("[", "").replace("]", "")
    return Needle((plain,), question.format(**words), plain, (key[1],))


def other_multi(random: Random) -> Needle:
    """Three of some things."""
    kind = random.choice(_KINDS).format(**_draw(random))
    things = random.sample(_THINGS.split(", "), 3)
    first, second, third = names = [thing.rpartition(" ")[0] for thing in things]
    return Needle(
        tuple(f"{thing[0].upper()}{thing[1:]} one of the {kind}." for thing in things),
        f"What are the {kind}?",
        f"The {kind} are {first}, {second} and {third}.",
        tuple(names),
    )


def other_code(random: Random) -> Needle:
    """A UUID in a sentence that says what it opens."""
    return _code("the {adjective} code of the {building} in {town}".format(**_draw(random)), random)


def _code(subject: str, random: Random) -> Needle:
    uuid = random_uuid(random)
    sentence = f"{subject[0].upper()}{subject[1:]} is {uuid}."
    return Needle((sentence,), f"What is {subject}?", sentence, (uuid,))


def _draw(random: Random) -> dict[str, str]:
    """A word for each gap."""
    words = {gap: random.choice(choice.split(", ")) for gap, choice in _WORDS.items()}
    town, elsewhere = random.sample(_WORDS["town"].split(", "), 2)
    return words | {"town": town, "elsewhere": elsewhere, "number": str(random.randint(12, 96))}


#: Questions and their needles; a right answer holds what stands in brackets. Nouns stand after `a`.
_STATEMENTS = (
    (
        "What did {person} keep in the {building} at {town}?",
        "What {person} kept in the {building} at {town} was [a {colour} {object} filled with "
        "{plant} seeds], as the neighbours found out much later.",
    ),
    (
        "Why does the {worker} of {town} never work on {day}s?",
        "The {worker} of {town} never works on {day}s because [a {animal} once made its nest in "
        "the {object}], and nobody wants to disturb it.",
    ),
    (
        "How does {person} cure a cold?",
        "To cure a cold, {person} [drinks hot {food} broth under a {material} blanket], which is "
        "said to take no longer than {number} hours.",
    ),
    (
        "What is the traditional dish of {town}?",
        "The traditional dish of {town} is [a {food} pie baked with {plant} leaves], which is "
        "served cold on the first {day} of {month}.",
    ),
    (
        "What is painted on the door of the {building} in {town}?",
        "On the door of the {building} in {town} is painted [a {colour} {animal} with a {object} "
        "in its mouth], the work of a travelling {worker}.",
    ),
    (
        "What does the oldest law of {town} forbid?",
        "The oldest law of {town} forbids [leading a {animal} past the {building} without a "
        "{object}] on any {day} in {month}.",
    ),
    (
        "Where did {person} hide the {material} {object}?",
        "{person} hid the {material} {object} [behind a loose board in the {building} of {town}], "
        "and told only the {worker} about it.",
    ),
    (
        "What makes the {food} soup of {person} so good?",
        "What makes the {food} soup of {person} so good is [a handful of {plant} leaves and a long "
        "rest beside the {object}], or so the {worker} believes.",
    ),
    (
        "When does the {building} in {town} open its doors?",
        "The {building} in {town} opens its doors [on the last {day} of {month} at half past "
        "seven], and only to those who bring a {object}.",
    ),
    (
        "How do the people of {town} celebrate the end of {month}?",
        "The people of {town} celebrate the end of {month} by [floating {colour} candles down the "
        "river and eating {food} by torchlight], whatever the weather.",
    ),
    (
        "What did the {worker} of {town} promise {person}?",
        "The {worker} of {town} promised {person} [a {material} {object} and half of the {plant} "
        "harvest] in return for mending the roof.",
    ),
    (
        "What is the quickest way from {town} to {elsewhere}?",
        "The quickest way from {town} to {elsewhere} is [over the {colour} bridge and along the "
        "wall of the {building}], some {number} minutes on foot.",
    ),
    (
        "What does {person} do on rainy days?",
        "On rainy days {person} likes to [carry the {plant} pots into the {building} and play "
        "cards with the {worker}] until the sky clears.",
    ),
    (
        "What was found beneath the floor of the {building} in {town}?",
        "Beneath the floor of the {building} in {town} was found [a {material} box with {number} "
        "{colour} buttons], which nobody has claimed since that {month}.",
    ),
    (
        "What gift did {person} receive from the mayor of {town}?",
        "The gift that {person} received from the mayor of {town} was [a tame {animal} and a "
        "{material} {object}], handed over in the {building}.",
    ),
    (
        "What is the name of the {animal} that lives in the {building} of {town}?",
        "The {animal} that lives in the {building} of {town} is called [Sir {adjective} of "
        "{elsewhere}], and it is fed {food} every {day}.",
    ),
    (
        "What did {person} plant along the road to {town}?",
        "Along the road to {town}, {person} planted [{number} rows of {plant} and a single "
        "{colour} rose], which the {worker} waters every {day}.",
    ),
    (
        "What is the {worker} of {town} most afraid of?",
        "The {worker} of {town} is most afraid of [meeting a {colour} {animal} near the "
        "{building}] and therefore always carries a {object}.",
    ),
    (
        "What do children in {town} get for a lost tooth?",
        "For a lost tooth, children in {town} get [a slice of {food} cake and a {material} "
        "whistle], provided that they ask before {day}.",
    ),
    (
        "How did {person} win the race to {town}?",
        "{person} won the race to {town} by [riding a borrowed {animal} through the garden of the "
        "{building}], more than {number} minutes ahead of the rest.",
    ),
    (
        "What is the {building} of {town} used for in {month}?",
        "The {building} of {town} is used in {month} for [drying {plant} and teaching young people "
        "to repair a {object}], free of charge on {day}s.",
    ),
    (
        "What must every guest of {person} bring to dinner?",
        "Every guest of {person} must bring to dinner [a jar of pickled {food} and a story about a "
        "{animal}], except for the {worker} of {town}.",
    ),
)
#: What three things may be.
_KINDS = (
    "gifts that the mayor of {town} sent to {person}",
    "things that {person} packed for the long crossing to {town}",
    "goods that may be sold at the {day} market of {town}",
    "treasures kept in the cellar of the {building} in {town}",
    "prizes that {person} won at the {month} fair in {town}",
    "wares that the {worker} of {town} never lends to anyone",
    "offerings left at the old {building} of {town} every {month}",
    "items that {person} was asked to bring back from {town}",
)
_THINGS = (
    "ginger is, walnuts are, saffron is, candles are, beeswax is, ribbons are, copper wire is, "
    "dried apples are, rye bread is, silver spoons are, cinnamon is, lanterns are, wool is, "
    "clay pipes are, mustard is, feathers are, blue paint is, playing cards are, honeycomb is, "
    "chestnuts are, birch bark is, sewing needles are, sea salt is, marbles are, vinegar is, "
    "wooden whistles are, black tea is, glass beads are, rope is, pickled onions are, soap is, "
    "old maps are, peppermint is, brass buttons are, charcoal is, umbrellas are"
)
_WORDS = {
    "town": "Elmford, Saltmere, Port Callow, Harrowgate, Brindle Bay, Stonewick, Marlow Cross, "
    "Quillham, Ashby Moor, Thornbury Quay, Vellamo, Kestrel Point, Dunmarsh, Larkfield, Ostrava "
    "Mill, Pinehollow, Ravenscar, Tillmouth, Wexcombe, Yarrow Hill, Zennerdale, Fallow Green, "
    "Copperbridge, Mistlethwaite, Juniper Falls, Oldwater, Norrland, Greymouth, Hazelbeck, Tamsin",
    "person": "Agnes Whitlock, Bruno Faraday, Celeste Moreau, Doctor Pemberton, Edda Lindqvist, "
    "Father Anselm, Greta Holloway, Hugo Castellan, Irma Blythe, Captain Rowe, Kasimir Vogel, "
    "Lady Thessaly, Matteo Brandt, Nadia Okafor, Oswin Tarr, Professor Quint, Rosalind Achebe, "
    "Sven Halloran, Tomoko Arai, Ursula Penhale, Viktor Sorrel, Wilhelmina Dray, Yusuf Karam, "
    "Zelda Marchetti, Judge Abernathy, Old Barnaby, Aunt Leonie, Cousin Ferdinand",
    "worker": "baker, blacksmith, bookbinder, carpenter, clockmaker, cobbler, ferryman, "
    "gardener, glazier, locksmith, miller, night watchman, postmaster, potter, roofer, "
    "schoolteacher, tailor, weaver, piano tuner, beekeeper",
    "building": "lighthouse, town hall, windmill, boathouse, library, greenhouse, bell tower, "
    "railway station, observatory, brewery, chapel, post office, theatre, watermill, schoolhouse, "
    "courthouse, museum, pump house, granary, tannery",
    "object": "lantern, kettle, barometer, fiddle, compass, teapot, pocket watch, ladder, "
    "telescope, typewriter, wheelbarrow, music box, saddle, chess set, spinning wheel, bucket, "
    "mirror, globe, suitcase, trumpet",
    "material": "copper, linen, silver, velvet, pewter, leather, cedar, porcelain, wicker, brass, "
    "marble, woollen, silk, tin, walnut, bronze",
    "colour": "blue, crimson, green, yellow, purple, turquoise, scarlet, white, golden, pink, "
    "violet, silver-grey, black, lilac",
    "animal": "heron, badger, goat, peacock, tortoise, raven, hedgehog, donkey, ferret, swan, "
    "lynx, parrot, beaver, fox, goose, crane, marten, stork",
    "plant": "lavender, thyme, foxglove, rosemary, fennel, clover, mint, nettle, hyssop, sage, "
    "marigold, juniper, tansy, chicory, sorrel, poppy",
    "food": "pumpkin, chestnut, leek, plum, barley, mushroom, rhubarb, trout, beetroot, quince, "
    "lentil, parsnip, blackberry, cabbage, pear, turnip",
    "adjective": "brave, northern, spare, hidden, winter, ancient, royal, lower, narrow, summer, "
    "patient, eastern, private, forgotten, upper, reserve",
    "day": "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
    "month": "January, February, March, April, May, June, July, August, September, October, "
    "November, December",
}
