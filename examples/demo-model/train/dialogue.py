"""Conversations: pictures, turns, and their ids with a mask that tells answers from prompts."""

import re
from dataclasses import dataclass, field

import questions
import scenes
from processor import fit, grid
from tokens import EFFORT, json_notice
from world import NUMBERS

LONGEST = 288  # ids; longer conversations lose their last turns


@dataclass
class Dialogue:
    scenes: list = field(default_factory=list)  # pictures of the first user turn
    turns: list = field(default_factory=list)  # questions.Question
    thinking: bool = False
    effort: str = ""  # with thinking: low, high, max or not said


def mean(names, weights, factors):
    """The factor of a group of tasks that are drawn by weights (1 where there is none)."""
    weights = {n: weights.get(n, 1.0) for n in names}
    return sum(w * factors.get(n, 1.0) for n, w in weights.items()) / sum(weights.values())


class Mixture:
    """How often what is drawn. factors: {task: how many times as often as usual}, 1 where it says nothing. Groups of tasks
    (text alone, two pictures, a kind of picture) become as much more frequent as their tasks on average."""

    LEAST = 0.05

    def __init__(self, factors={}):
        self.factors = {n: max(self.LEAST, f) for n, f in factors.items()}
        asked = {kind: mean(table, questions.WEIGHTS, self.factors) for kind, table in questions.ASK.items()}
        self.kinds = {kind: share * asked[kind] for kind, share in scenes.KINDS.items()}
        text = 0.22 * mean([*questions.TEXT_JOBS, "json_text_job"], questions.TEXT_WEIGHTS, self.factors)
        two = 0.08 * mean(questions.ASK_TWO, {}, self.factors)
        one = 0.70 * sum(self.kinds.values()) / sum(scenes.KINDS.values())
        self.text, self.two = text / (text + two + one), two / (text + two + one)
        self.follow_up, self.text_follow_up = (min(0.8, chance * self.factors.get(name, 1.0)) for name, chance in
                                               (("follow_up", 0.25), ("text_follow_up", 0.15)))


USUAL = Mixture()


def thought(dialogue):
    if not dialogue.scenes:
        return "A text question."
    scene = dialogue.scenes[-1]
    if scene.kind == "shapes":
        return f"I see {NUMBERS[len(scene.things)].lower()} object{'s' * (len(scene.things) > 1)}."
    return {"text": "I see text.", "flag": "I see a flag.", "chart": "I see a chart."}[scene.kind]


def end_with_schema(turns):
    """The template states a schema after the whole conversation, so only the last turn can have one."""
    with_schema = [t for t in turns if t.schema]
    return [t for t in turns if not t.schema] + with_schema[:1]


def about_picture(rng, scene, most, mixture):
    turns = (questions.follow_up(rng, scene) or []) if rng.random() < mixture.follow_up else []
    prompts = {t.prompt for t in turns}
    tasks = {t.task for t in turns} & {"caption"}
    for _ in range(12):
        if len(turns) >= most:
            break
        q = questions.ask(rng, scene, factors=mixture.factors)
        if q.prompt not in prompts and q.task not in tasks:
            turns.append(q)
            prompts.add(q.prompt)
            tasks |= {q.task} & {"caption"}
    return Dialogue([scene], end_with_schema(turns))


def about_two(rng, pick, mixture):
    while True:
        both = [pick(), pick()]
        if rng.random() < 0.6:
            both = [scenes.any_scene(rng, "shapes", (1, 1, 2, 3)) for _ in both]
        turns = {}
        for _ in range(rng.randint(2, 4)):
            q = questions.ask_two(rng, both, factors=mixture.factors)
            turns[q.prompt] = q
        return Dialogue(both, list(turns.values()))


def without_picture(rng, mixture=USUAL):
    turns = []
    for _ in range(rng.randint(2, 5)):
        if rng.random() < mixture.text_follow_up:
            turns += questions.text_follow_up(rng)
        else:
            turns.append(questions.text_job(rng, factors=mixture.factors))
    return Dialogue([], end_with_schema(turns))


def lesson(rng, counts, mixture=USUAL):
    """One conversation of the mixture, usually 70 % about a picture, 8 % about two, 22 % without."""
    kind = rng.random()
    if kind < mixture.text:
        dialogue = without_picture(rng, mixture)
    elif kind < mixture.text + mixture.two:
        dialogue = about_two(rng, lambda: scenes.any_scene(rng, counts=counts, kinds=mixture.kinds), mixture)
    else:
        scene = scenes.any_scene(rng, counts=counts, kinds=mixture.kinds)
        dialogue = about_picture(rng, scene, 2 if scene.kind == "flag" else 4, mixture)
    dialogue.thinking = rng.random() < 0.08
    if dialogue.thinking and rng.random() < 0.3:
        dialogue.effort = rng.choice(["low", "high", "max"])
    return dialogue


def first_turn(tok, dialogue, question):
    ids = tok.effort(dialogue.effort) if dialogue.effort else []
    ids += tok.open("message", role="user")
    for scene in dialogue.scenes:
        rows, columns = grid(*fit(*scene.source))
        ids += tok.image(*scene.source, rows * columns // 4)
    return ids + tok.encode(question.prompt) + tok.end_message()


def encode(tok, dialogue):
    """(ids, mask): mask is 1 where an id is to be predicted: the answer and everything that ends it."""
    ids, mask = [], []
    for i, question in enumerate(dialogue.turns):
        if i == 0:
            prompt = first_turn(tok, dialogue, question)
        else:
            prompt = tok.open("message", role="user") + tok.encode(question.prompt) + tok.end_message()
        if question.schema:
            prompt += tok.wants_json(question.schema)
        prompt += tok.open("message", role="assistant")
        if dialogue.thinking:
            prompt += tok.open("think")
            answer = tok.encode(thought(dialogue)) + tok.close("think") + tok.open("response")
        else:
            prompt += tok.open("response")
            answer = []
        answer += tok.encode(question.answer) + tok.close("response") + tok.end_message()
        if i and len(ids) + len(prompt) + len(answer) > LONGEST:
            break
        ids += prompt + answer
        mask += [0] * len(prompt) + [1] * len(answer)
    return ids, mask


def corpus(rng, conversations):
    """Texts to learn a vocabulary from; digits, runs of capitals and spelled words are left out, so they stay bytes."""
    texts = [EFFORT.format(e) for e in ("low", "high", "max")] * 40
    texts += ["message", " role", " type", '="', "user", "assistant", "system", '"', "think", "response", "image"] * 100
    texts += ["thinking-effort", "response-format"] * 100
    for _ in range(conversations):
        dialogue = lesson(rng, (1, 2, 3, 4))
        texts.append(thought(dialogue))
        for q in dialogue.turns:
            texts += [q.prompt, q.answer]
            if q.schema:
                texts.append(json_notice(q.schema))
    return [re.sub(r"[0-9]|\b[A-Z]{2,}\b|-?\b[A-Z]-[A-Z-]+|\"[A-Z]\"", " ", t) for t in texts]
