"""grammar.py: the text that the demonstration model learns: short English of a small grammar.

A text is a handful of sentences about a few people, animals and things.  What comes next depends on
what stands some way before it, so that a model that predicts it has to look there:

  agreement   "the birds behind the old house sing": the verb follows the first noun, not the nearest
  brackets    "the cat (the one [a small cat] near the box) sleeps": ( [ { close in their order
  facts       "Anna lives in Oslo." ... "In Oslo Anna sings.": a name belongs to one place and thing
  pronouns    "Anna sees the dog. She waits.": of the last name
  keyword     "Remember copper." ... "The word was copper.": a rare word, asked for later
  repetition  a sentence, or its first words, occurs again; some names are made of random letters

Needs Python's standard library alone; the same seed makes the same text.
"""
import random

WOMEN = "Anna Clara Ella Iris Lena Mary Mira Nora Rosa Sofia Vera Zoe".split()
MEN = "Adam Boris Carl David Felix Hugo Ivan John Leo Oscar Paul Tom".split()
PLACES = ("Berlin Cairo Delhi Dublin Lagos Lima London Madrid Moscow Oslo Paris Prague Rome Tokyo "
          "Vienna Zurich").split()
ANIMATE = ("cat dog bird horse girl boy teacher farmer doctor baker king queen sailor student friend "
           "robot fox/foxes bear lion mouse/mice child/children man/men woman/women").split()
THINGS = ("book apple letter lamp box/boxes key boat hat ring stone flower cup chair map bell coin "
          "house tree car ball mat table river bridge door window").split()
COLOURS = "red blue green black white yellow".split()
KINDS = "big small old young happy quiet tall brave kind new".split()
SEE = "see like watch/watches follow know help call find want hear remember love".split()
SLEEP = "sleep run sing wait laugh work dance swim read play walk".split()
PAST = "sat stood lay jumped".split()
NEAR = "near behind with beside above under on".split()
WHEN = "here today often again slowly now".split()
JOINED = ("and", "but", "while")
KEYWORDS = ("amber anchor basil bronze cactus candle carbon cedar cobalt copper coral cotton crystal "
            "ginger granite honey indigo ivory jasmine lemon linen marble mango nickel olive onyx opal "
            "pearl pepper pollen quartz ruby saffron satin silver sulphur velvet walnut willow zinc"
            ).split()
BRACKETS = ("()", "[]", "{}")


def number(word, plural, verb=False):
    """The form of a noun, or of a verb, for one or for many."""
    base, _, other = word.partition("/")
    return (other or base + "s") if plural != verb else base


class Text:
    """One text: its people and what is true of them."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        names = [(name, "She") for name in WOMEN] + [(name, "He") for name in MEN]
        people = chance.sample(names, 3)
        if chance.random() < 0.3:
            people[0] = (self._invented(), people[0][1])
        places = chance.sample(PLACES, 3)
        self.people = [(name, pronoun, place, chance.choice(COLOURS), chance.choice(THINGS))
                       for (name, pronoun), place in zip(people, places)]
        self.pronoun, self.keyword, self.sentences = "", "", []

    def _invented(self):
        """A name of two or three random syllables."""
        syllables = (self.chance.choice("bdfgklmnprstvz") + self.chance.choice("aeiou") +
                     self.chance.choice("lmnrstx") for _ in range(self.chance.randint(2, 3)))
        return "".join(syllables).capitalize()

    def _aside(self, depth=1):
        """Words in brackets; more brackets within them, up to three deep."""
        opening, closing = self.chance.choice(BRACKETS)
        inner = [self.chance.choice(("the", "a")), self.chance.choice(KINDS + COLOURS), "one"]
        if depth < 3 and self.chance.random() < 0.45:
            inner.append(self._aside(depth + 1))
        if self.chance.random() < 0.6:
            inner += [self.chance.choice(NEAR), "the",
                      number(self.chance.choice(THINGS), self.chance.random() < 0.5)]
        if depth < 3 and self.chance.random() < 0.2:
            inner.append(self._aside(depth + 1))
        return opening + " ".join(inner) + closing

    def _noun(self, words, plural):
        """An article, perhaps a property, and a noun."""
        made = [self.chance.choice(("the", "some") if plural else ("the", "a"))]
        if self.chance.random() < 0.4:
            made.append(self.chance.choice(KINDS))
        return [*made, number(self.chance.choice(words), plural)]

    def _action(self, plural):
        """A verb and what belongs to it."""
        kind = self.chance.random()
        if kind < 0.45:
            return [number(self.chance.choice(SEE), plural, verb=True),
                    *self._noun(ANIMATE + THINGS, self.chance.random() < 0.5)]
        if kind < 0.8:
            made = [number(self.chance.choice(SLEEP), plural, verb=True)]
            return made + [self.chance.choice(WHEN)] * (self.chance.random() < 0.5)
        return [self.chance.choice(PAST), self.chance.choice(NEAR), *self._noun(THINGS, False)]

    def agreement(self):
        """A subject, what stands between, and the verb that agrees with the subject."""
        plural = self.chance.random() < 0.5
        made = self._noun(ANIMATE, plural)
        kind = self.chance.random()
        if kind < 0.35:
            made += [self.chance.choice(NEAR), *self._noun(THINGS, self.chance.random() < 0.5)]
        elif kind < 0.6:
            many = self.chance.random() < 0.5
            made += ["that", *self._noun(ANIMATE, many),
                     number(self.chance.choice(SEE), many, verb=True)]
        if self.chance.random() < 0.4:
            made.append(self._aside())
        made += self._action(plural)
        if self.chance.random() < 0.15:
            many = self.chance.random() < 0.5
            made += [self.chance.choice(JOINED), *self._noun(ANIMATE, many), *self._action(many)]
        return made

    def fact(self):
        """What is true of a person, in one of several forms."""
        name, self.pronoun, place, colour, thing = self.chance.choice(self.people)
        forms = (f"{name} lives in {place}", f"In {place} {name}", f"{name} has a {colour} {thing}",
                 f"The {colour} {thing} of {name} is in {place}", f"{name}")
        form = self.chance.choice(forms)
        return form.split() + (self._action(False) if form.endswith(name) else [])

    def pronominal(self):
        """What the last person does."""
        return [self.pronoun, *self._action(False)] if self.pronoun else self.fact()

    def rare(self):
        """The keyword: said once, then asked for."""
        if self.keyword:
            return ["The", "word", "was", self.keyword]
        self.keyword = self.chance.choice(KEYWORDS)
        return ["Remember", self.keyword]

    def repeated(self):
        """A sentence of before, or its first words and another end."""
        if not self.sentences:
            return self.fact()
        words = self.chance.choice(self.sentences[-6:])
        return list(words)

    def sentence(self):
        """The next one, as a string."""
        kinds = (self.agreement, self.fact, self.pronominal, self.rare, self.repeated)
        words = self.chance.choices(kinds, (35, 25, 10, 10, 20))[0]()
        self.sentences.append(words)
        line = " ".join(words)
        return line[0].upper() + line[1:] + "."


def text_of(chance: random.Random, characters: int) -> str:
    """A text of about as many characters."""
    text, made = Text(chance), ""
    while len(made) < characters:
        made += (" " if made else "") + text.sentence()
    return made


def words_of() -> "list[str]":
    """Every word that the grammar has, in each of its forms."""
    words = [*WOMEN, *MEN, *PLACES, *COLOURS, *KINDS, *PAST, *NEAR, *WHEN, *JOINED, *KEYWORDS,
             "the", "a", "some", "one", "that", "in", "lives", "has", "of", "is", "word", "was",
             "The", "A", "Some", "In", "She", "He", "Remember"]
    for word in ANIMATE + THINGS + SEE + SLEEP:
        words += [number(word, False), number(word, True)]
    return list(dict.fromkeys(words))
