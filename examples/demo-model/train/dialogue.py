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


def about_picture(rng, scene, most):
    turns = (questions.follow_up(rng, scene) or []) if rng.random() < 0.25 else []
    prompts = {t.prompt for t in turns}
    tasks = {t.task for t in turns} & {"caption"}
    for _ in range(12):
        if len(turns) >= most:
            break
        q = questions.ask(rng, scene)
        if q.prompt not in prompts and q.task not in tasks:
            turns.append(q)
            prompts.add(q.prompt)
            tasks |= {q.task} & {"caption"}
    return Dialogue([scene], end_with_schema(turns))


def about_two(rng, pick):
    while True:
        both = [pick(), pick()]
        if rng.random() < 0.6:
            both = [scenes.any_scene(rng, "shapes", (1, 1, 2, 3)) for _ in both]
        turns = {}
        for _ in range(rng.randint(2, 4)):
            q = questions.ask_two(rng, both)
            turns[q.prompt] = q
        return Dialogue(both, list(turns.values()))


def without_picture(rng):
    turns = []
    for _ in range(rng.randint(2, 5)):
        turns += questions.text_follow_up(rng) if rng.random() < 0.15 else [questions.text_job(rng)]
    return Dialogue([], end_with_schema(turns))


def lesson(rng, counts):
    """One conversation of the mixture: 70 % about a picture, 8 % about two, 22 % without."""
    kind = rng.random()
    if kind < 0.22:
        dialogue = without_picture(rng)
    elif kind < 0.30:
        dialogue = about_two(rng, lambda: scenes.any_scene(rng, counts=counts))
    else:
        scene = scenes.any_scene(rng, counts=counts)
        dialogue = about_picture(rng, scene, 2 if scene.kind == "flag" else 4)
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
