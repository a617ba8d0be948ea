"""Questions about scenes, and small jobs without pictures, with their answers.

A question is (task, prompt, answer, schema); schema is None, or the JSON schema that the job asks for. Asking for a task
that a scene has no question for gives None.
"""

import json
from collections import namedtuple

import world
from world import NUMBERS, a, capital_letter, place

Question = namedtuple("Question", "task prompt answer schema", defaults=(None,))

DESCRIBE = [
    "Describe the image.", "Describe this image.", "Describe the picture.", "What is in the image?",
    "Caption this image.", "Write a caption.", "What do you see?",
]
AS_JSON = ["Answer as JSON.", "Answer in JSON.", "Give JSON."]


# -- pictures ----------------------------------------------------------------------------------------------------------


def relation(first, second):
    if first.cell % 3 != second.cell % 3:
        return "to the left of" if first.cell % 3 < second.cell % 3 else "to the right of"
    return "above" if first.cell < second.cell else "below"


def caption(scene):
    ground = f" on {a(scene.background)} background"
    if scene.kind == "flag":
        return f"The flag of {scene.flag}."
    if scene.kind == "text":
        digits, one = scene.text.isdigit(), len(scene.text) == 1
        noun = ("digit" if one else "number") if digits else ("letter" if one else "word")
        return f'The {noun} "{scene.text}" in {scene.colour}{ground}.'
    if scene.kind == "chart":
        return f"A bar chart with {NUMBERS[len(scene.bars)].lower()} bars: {', '.join(b.name for b in scene.bars)}."
    things = scene.things
    if len(things) == 1:
        return f"A {things[0].name()} {place(things[0].cell)}{ground}."
    if len(things) == 2:
        first, second = things
        if relation(first, second) not in ("to the left of", "above"):
            first, second = second, first
        return f"A {first.name()} {relation(first, second)} a {second.name()}{ground}."
    listed = ", ".join(f"a {t.name()} {place(t.cell)}" for t in things)
    return f"{NUMBERS[len(things)]} objects{ground}: {listed}."


def single(things, key):
    """Those that no other thing equals in this respect."""
    values = [key(t) for t in things]
    return [t for t in things if values.count(key(t)) == 1]


def schema_of(**types):
    kinds = {str: {"type": "string"}, int: {"type": "integer"}, bool: {"type": "boolean"}}
    return {
        "type": "object", "properties": {k: kinds[t] for k, t in types.items()}, "required": list(types),
        "additionalProperties": False,
    }


def json_question(rng, task, prompt, **values):
    """Half of them by a schema, half in words."""
    answer = json.dumps(values)
    if rng.random() < 0.5:
        return Question(task, prompt, answer, schema_of(**{k: type(v) for k, v in values.items()}))
    return Question(task, f"{prompt} {rng.choice(AS_JSON)} Keys: {', '.join(values)}.", answer)


def ask_caption(rng, scene):
    if scene.kind == "shapes" and len(scene.things) > 4:
        return None
    return Question("caption", rng.choice(DESCRIBE), caption(scene))


def ask_background(rng, scene):
    if scene.kind in ("flag", "chart"):
        return None
    prompt = rng.choice(["What colour is the background?", "What is the background color?"])
    return Question("background", prompt, capital_letter(scene.background))


def ask_count(rng, scene):
    prompt = rng.choice(["How many objects are there?", "How many shapes are in the image?", "Count the objects."])
    return Question("count", prompt, NUMBERS[len(scene.things)])


def ask_count_shape(rng, scene):
    shapes = [t.shape for t in scene.things]
    shape = rng.choice(shapes) if rng.random() < 0.7 else rng.choice(list(world.SHAPES))
    return Question("count_shape", f"How many {world.SHAPES[shape]} are there?", NUMBERS[shapes.count(shape)])


def ask_colour(rng, scene):
    if things := single(scene.things, lambda t: t.shape):
        thing = rng.choice(things)
        prompt = f"What {rng.choice(['colour', 'color'])} is the {thing.shape}?"
        return Question("colour", prompt, capital_letter(thing.colour))


def ask_shape(rng, scene):
    if things := single(scene.things, lambda t: t.colour):
        thing = rng.choice(things)
        return Question("shape", f"What shape is the {thing.colour} object?", "A " + thing.shape)


def ask_size(rng, scene):
    if things := single(scene.things, lambda t: t.shape):
        thing = rng.choice(things)
        return Question("size", f"Is the {thing.shape} large or small?", "Large" if thing.large else "Small")


def ask_where(rng, scene):
    if things := single(scene.things, lambda t: t.shape):
        thing = rng.choice(things)
        return Question("where", f"Where is the {thing.shape}?", capital_letter(place(thing.cell)))


def ask_at(rng, scene):
    cell = rng.choice(scene.things).cell if rng.random() < 0.75 else rng.randrange(9)
    there = [t for t in scene.things if t.cell == cell]
    return Question("at", f"What is {place(cell)}?", "A " + there[0].name() if there else "Nothing")


def ask_relation(rng, scene):
    if len(scene.things) != 2:
        return None
    first, second = rng.sample(scene.things, 2)
    if first.name(False) == second.name(False):
        return None
    return Question("relation", f"What is {relation(first, second)} the {second.name(False)}?", "A " + first.name())


def ask_beside(rng, scene):
    """Is it so, yes or no, for two things of which there is one each."""
    things = single(scene.things, lambda t: t.name(False))
    if len(things) < 2:
        return None
    first, second = rng.sample(things, 2)
    said = {"left of": first.cell % 3 < second.cell % 3, "right of": first.cell % 3 > second.cell % 3,
            "above": first.cell // 3 < second.cell // 3, "below": first.cell // 3 > second.cell // 3}
    how = rng.choice(list(said))
    return Question("beside", f"Is the {first.name(False)} {how} the {second.name(False)}?", "Yes" if said[how] else "No")


def ask_exists(rng, scene):
    there = {(t.colour, t.shape) for t in scene.things}
    thing = rng.choice(scene.things)
    wanted = thing.colour, thing.shape
    if rng.random() < 0.5:
        near = rng.random() < 0.5  # the colour is there, or the shape
        wanted = (wanted[0], rng.choice(list(world.SHAPES))) if near else (rng.choice(list(world.COLOURS)), wanted[1])
    return Question("exists", f"Is there a {wanted[0]} {wanted[1]}?", "Yes" if wanted in there else "No")


def ask_json_object(rng, scene):
    if len(scene.things) != 1:
        return None
    thing = scene.things[0]
    values = {"color": thing.colour, "shape": thing.shape}
    if rng.random() < 0.5:
        values["size"] = "large" if thing.large else "small"
    return json_question(rng, "json_object", "Describe the object.", **values)


def ask_json_count(rng, scene):
    shape = rng.choice(scene.things).shape if rng.random() < 0.7 else rng.choice(list(world.SHAPES))
    n = sum(t.shape == shape for t in scene.things)
    return json_question(rng, "json_count", f"Count the objects and the {world.SHAPES[shape]}.",
                         objects=len(scene.things), **{world.SHAPES[shape]: n})


def ask_read(rng, scene):
    prompts = ["Read the text.", "What does it say?", "What is written in the image?", "Transcribe the text."]
    return Question("read", rng.choice(prompts), scene.text)


def ask_text_colour(rng, scene):
    return Question("text_colour", rng.choice(["What colour is the text?", "What color is the text?"]), scene.colour)


def ask_json_text(rng, scene):
    return json_question(rng, "json_text", "Read the text and its color.", text=scene.text, color=scene.colour)


def ask_flag(rng, scene):
    prompts = ["Which country's flag is this?", "Whose flag is this?", "Name the country."]
    return Question("flag", rng.choice(prompts), capital_letter(scene.flag))


def ask_capital_of_flag(rng, scene):
    return Question("capital_of_flag", "What is the capital of this country?", world.FLAGS[scene.flag][2])


def ask_json_flag(rng, scene):
    return json_question(rng, "json_flag", "Name the country and its capital.", country=capital_letter(scene.flag),
                         capital=world.FLAGS[scene.flag][2])


def ask_largest(rng, scene):
    bar = max(scene.bars, key=lambda b: b.value)
    word = rng.choice(["largest", "longest", "highest"])
    return Question("chart_largest", f"Which bar is the {word}?", capital_letter(bar.name))


def ask_smallest(rng, scene):
    bar = min(scene.bars, key=lambda b: b.value)
    word = rng.choice(["smallest", "shortest", "lowest"])
    return Question("chart_smallest", f"Which bar is the {word}?", capital_letter(bar.name))


def ask_order(rng, scene):
    up = rng.random() < 0.5
    bars = sorted(scene.bars, key=lambda b: b.value, reverse=not up)
    prompt = "Sort the bars from smallest to largest." if up else "Sort the bars from largest to smallest."
    return Question("chart_order", prompt, ", ".join(b.name for b in bars))


def ask_compare(rng, scene):
    first, second = rng.sample(scene.bars, 2)
    one, other = (b.name if scene.labels else f"the {b.name} bar" for b in (first, second))
    word, yes = rng.choice([("larger", first.value > second.value), ("smaller", first.value < second.value)])
    return Question("chart_compare", f"Is {one} {word} than {other}?", "Yes" if yes else "No")


def ask_bars(rng, scene):
    return Question("chart_count", "How many bars are there?", NUMBERS[len(scene.bars)])


def ask_json_chart(rng, scene):
    bars = sorted(scene.bars, key=lambda b: b.value)
    return json_question(rng, "json_chart", "Name the largest and the smallest bar.", largest=bars[-1].name,
                         smallest=bars[0].name)


ASK = {
    "shapes": {
        "caption": ask_caption, "count": ask_count, "colour": ask_colour, "shape": ask_shape, "relation": ask_relation,
        "beside": ask_beside, "where": ask_where, "exists": ask_exists, "background": ask_background, "size": ask_size,
        "at": ask_at, "count_shape": ask_count_shape, "json_object": ask_json_object, "json_count": ask_json_count,
    },
    "text": {
        "caption": ask_caption, "read": ask_read, "text_colour": ask_text_colour, "background": ask_background,
        "json_text": ask_json_text,
    },
    "flag": {
        "caption": ask_caption, "flag": ask_flag, "capital_of_flag": ask_capital_of_flag, "json_flag": ask_json_flag,
    },
    "chart": {
        "caption": ask_caption, "chart_largest": ask_largest, "chart_smallest": ask_smallest, "chart_order": ask_order,
        "chart_compare": ask_compare, "chart_count": ask_bars, "json_chart": ask_json_chart,
    },
}
WEIGHTS = {"caption": 2.0, "read": 2.5, "exists": 1.3, "json_count": 0.5, "json_text": 0.6, "json_flag": 0.5,
           "chart_count": 0.5}


def ask(rng, scene, task=None, factors={}):
    """A question of this task, or None; without a task: of any that the scene has one for, factors[task] times as often."""
    table = ASK[scene.kind]
    if task:
        return table[task](rng, scene) if task in table else None
    names = list(table)
    weights = [WEIGHTS.get(n, 1.0) * factors.get(n, 1.0) for n in names]
    while True:
        if question := table[rng.choices(names, weights)[0]](rng, scene):
            return question


# -- two pictures ------------------------------------------------------------------------------------------------------

ORDINALS = ["first", "second"]


def ask_which(rng, scenes):
    """Which of the two shows this shape or colour."""
    if any(s.kind != "shapes" for s in scenes):
        return None
    if rng.random() < 0.5:
        has = [[t.shape for t in s.things] for s in scenes]
        wanted = rng.choice([*has[0], *has[1], rng.choice(list(world.SHAPES))])
        prompt = f"Which image shows a {wanted}?"
    else:
        has = [[t.colour for t in s.things] for s in scenes]
        wanted = rng.choice([*has[0], *has[1], rng.choice(list(world.COLOURS))])
        prompt = f"Which image shows {a(wanted)} object?"
    answers = {(True, False): "The first", (False, True): "The second", (True, True): "Both", (False, False): "Neither"}
    return Question("two_which", prompt, answers[wanted in has[0], wanted in has[1]])


def ask_more(rng, scenes):
    if any(s.kind != "shapes" for s in scenes):
        return None
    first, second = (len(s.things) for s in scenes)
    answer = "The first" if first > second else "The second" if second > first else "Neither"
    return Question("two_more", "Which image has more objects?", answer)


def ask_one(rng, scenes):
    """A question about one of the two, which it names."""
    n = rng.randrange(2)
    scene = scenes[n]
    where = f" the {ORDINALS[n]} image"
    if scene.kind == "text":
        return Question("two_one", f"Read the text in{where}.", scene.text)
    if scene.kind == "flag":
        return Question("two_one", f"Whose flag is{where}?", capital_letter(scene.flag))
    if scene.kind == "chart":
        return Question("two_one", f"Which bar is the largest in{where}?", ask_largest(rng, scene).answer)
    prompt, question = rng.choice([
        ("How many objects are in{}?", ask_count(rng, scene)),
        ("What colour is the background of{}?", ask_background(rng, scene)),
        ("Describe{}.", ask_caption(rng, scene)),
    ])
    return Question("two_one", prompt.format(where), question.answer) if question else None


ASK_TWO = {"two_which": ask_which, "two_more": ask_more, "two_one": ask_one}


def ask_two(rng, scenes, task=None, factors={}):
    if task:
        return ASK_TWO[task](rng, scenes)
    weights = [factors.get(n, 1.0) for n in ASK_TWO]
    while True:
        if question := ASK_TWO[rng.choices(list(ASK_TWO), weights)[0]](rng, scenes):
            return question


# -- follow-ups: a first question and one that cannot be understood without it --------------------------------------------


def follow_up(rng, scene):
    """[first, second] about a picture, or None."""
    if scene.kind == "shapes":
        things = [t for t in single(scene.things, lambda t: t.shape) if t in single(scene.things, lambda t: t.colour)]
        if not things:
            return None
        thing = rng.choice(things)
        by_colour = Question("shape", f"What shape is the {thing.colour} object?", "A " + thing.shape)
        by_shape = Question("colour", f"What colour is the {thing.shape}?", capital_letter(thing.colour))
        first = rng.choice([by_colour, by_shape])
        prompt, answer = rng.choice([
            ("Where is it?", capital_letter(place(thing.cell))),
            ("Is it large or small?", "Large" if thing.large else "Small"),
        ])
    elif scene.kind == "text":
        first, prompt, answer = ask_read(rng, scene), *rng.choice([
            ("What colour is it?", capital_letter(scene.colour)), ("Reverse it.", scene.text[::-1]),
            ("How many characters are that?", str(len(scene.text))),
        ])
    elif scene.kind == "flag":
        first, prompt, answer = ask_flag(rng, scene), "And the capital?", world.FLAGS[scene.flag][2]
    else:
        first, prompt = ask_largest(rng, scene), "And the smallest?"
        answer = ask_smallest(rng, scene).answer
    return [first, Question("follow_up", prompt, answer)]


def text_follow_up(rng):
    if rng.random() < 0.5:
        one, two, three = rng.randint(0, 20), rng.randint(0, 20), rng.randint(0, 9)
        first = Question("add", f"What is {one} + {two}?", str(one + two))
        return [first, Question("text_follow_up", f"Add {three} to that.", str(one + two + three))]
    word = some_word(rng)
    first = Question("reverse", f"Reverse the word {word}.", word[::-1])
    prompt, answer = rng.choice([("What is its first letter?", word[-1]), ("Reverse it again.", word),
                                 ("How many letters are that?", str(len(word)))])
    return [first, Question("text_follow_up", prompt, answer)]


# -- text alone --------------------------------------------------------------------------------------------------------


def some_word(rng, shortest=2, longest=5):
    if rng.random() < 0.5:
        return rng.choice([w for w in world.WORDS if shortest <= len(w) <= longest])
    return "".join(rng.choice(world.LETTERS) for _ in range(rng.randint(shortest, longest)))


def job_add(rng):
    one, two = rng.randint(0, 20), rng.randint(0, 20)
    return f"What is {one} + {two}?", str(one + two)


def job_sub(rng):
    one = rng.randint(0, 20)
    two = rng.randint(0, one)
    return f"What is {one} - {two}?", str(one - two)


def job_mul(rng):
    one, two = rng.randint(0, 9), rng.randint(0, 9)
    return f"What is {one} * {two}?", str(one * two)


def job_reverse(rng):
    word = some_word(rng)
    return f"Reverse the word {word}.", word[::-1]


def job_spell(rng):
    word = some_word(rng)
    return f"Spell the word {word}.", "-".join(word)


def job_first(rng):
    word = some_word(rng)
    if rng.random() < 0.5:
        return f"What is the last letter of {word}?", word[-1]
    return f"What is the first letter of {word}?", word[0]


def job_letters(rng):
    word = some_word(rng, 2, 6)
    return f"How many letters are in {word}?", str(len(word))


def job_sort(rng):
    numbers = [rng.randint(0, 9) for _ in range(rng.randint(3, 4))]
    return f"Sort the numbers {' '.join(map(str, numbers))}.", " ".join(map(str, sorted(numbers)))


def job_max(rng):
    numbers = [rng.randint(0, 99) for _ in range(3)]
    return f"Which is the largest of {', '.join(map(str, numbers))}?", str(max(numbers))


def job_greater(rng):
    one, two = rng.sample(range(50), 2)
    return f"Is {one} greater than {two}?", "Yes" if one > two else "No"


def job_calendar(rng, step, word):
    names = rng.choice([world.DAYS, world.MONTHS])
    i = rng.randrange(len(names))
    return f"What comes {word} {names[i]}?", names[(i + step) % len(names)]


def job_opposite(rng):
    pair = rng.choice(list(world.OPPOSITES.items()))
    one, other = pair if rng.random() < 0.5 else pair[::-1]
    return f"What is the opposite of {one}?", capital_letter(other)


def job_capital(rng):
    country = rng.choice(list(world.FLAGS))
    return f"What is the capital of {country}?", world.FLAGS[country][2]


def job_mix(rng):
    one, other, result = rng.choice(world.MIXTURES)
    if rng.random() < 0.5:
        one, other = other, one
    return f"What do you get when you mix {one} and {other}?", capital_letter(result)


def job_fact(rng):
    return rng.choice(list(world.FACTS.items()))


TEXT_JOBS = {
    "add": job_add, "sub": job_sub, "mul": job_mul, "reverse": job_reverse, "sort": job_sort, "letters": job_letters,
    "greater": job_greater, "after": lambda rng: job_calendar(rng, 1, "after"),
    "before": lambda rng: job_calendar(rng, -1, "before"), "opposite": job_opposite, "capital": job_capital,
    "mix": job_mix, "fact": job_fact, "max": job_max, "spell": job_spell, "first": job_first,
}
# What a table can answer needs fewer lessons than what must be worked out.
TEXT_WEIGHTS = {"add": 2.5, "sub": 1.5, "reverse": 1.5, "sort": 1.5, "max": 1.5, "greater": 1.2, "fact": 0.7, "mix": 0.4,
                "opposite": 0.5, "capital": 0.6, "after": 0.6, "before": 0.6, "json_text_job": 1.2}


def json_job(rng):
    one, two = rng.randint(0, 20), rng.randint(0, 20)
    if rng.random() < 0.5:
        return json_question(rng, "json_text_job", f"Add {one} and {two}.", sum=one + two)
    word = some_word(rng)
    return json_question(rng, "json_text_job", f"Reverse {word} and count its letters.", reversed=word[::-1],
                         letters=len(word))


def text_job(rng, task=None, factors={}):
    names = [*TEXT_JOBS, "json_text_job"]
    task = task or rng.choices(names, [TEXT_WEIGHTS.get(n, 1.0) * factors.get(n, 1.0) for n in names])[0]
    return json_job(rng) if task == "json_text_job" else Question(task, *TEXT_JOBS[task](rng))
