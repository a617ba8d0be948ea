"""Writes held-out jobs of every task the demo model is taught: make.py OUT [JOBS_PER_TASK [SEED]].

OUT/jobs.jsonl (OpenAI batch form), OUT/expected.jsonl (custom_id, task, answer) and OUT/images. Pictures are files as they
come: 100 to 900 pixels wide, PNG and JPEG, some turned by EXIF, with noise and blur. Several questions share a picture.
The seed is not one that training uses. Needs Pillow, numpy and the DejaVu fonts.
"""

import json
import os
import random
import sys

from PIL import Image

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "examples", "demo-model", "train"))

import draw
import questions
import scenes

MOST_OF_ONE_PICTURE = 5
# EXIF orientation -> what was done to the upright picture before it was stored.
TURNS = {3: Image.Transpose.ROTATE_180, 6: Image.Transpose.ROTATE_90, 8: Image.Transpose.ROTATE_270}
PICTURE_TASKS = {
    "shapes": ["caption_1", "caption_2", "caption_3", "caption_4", "count", "colour", "shape", "relation", "beside",
               "where", "exists", "background", "size", "at", "count_shape", "json_object", "json_count"],
    "text": ["caption_text", "read_word", "read_number", "text_colour", "json_text"],
    "flag": ["caption_flag", "flag", "capital_of_flag", "json_flag"],
    "chart": ["caption_chart", "chart_largest", "chart_smallest", "chart_order", "chart_compare", "chart_count",
              "json_chart"],
}
TWO_TASKS = ["two_which", "two_more", "two_one"]


class Set:
    def __init__(self, out, amount, seed):
        self.out, self.amount, self.rng = out, amount, random.Random(f"eval {seed}")
        self.jobs, self.expected, self.count, self.pictures = [], [], {}, 0
        os.makedirs(os.path.join(out, "images"), exist_ok=True)

    def wants(self, task):
        return self.count.get(task, 0) < self.amount

    def picture(self, scene):
        """Draws and stores it; gives the name relative to jobs.jsonl."""
        image, _ = draw.draw(scene, self.rng, full=True)
        jpeg = scene.damage["noise"] or scene.damage["jpeg"] or self.rng.random() < 0.3
        name = f"images/{self.pictures:05d}.{'jpg' if jpeg else 'png'}"
        self.pictures += 1
        turn = self.rng.choice([1, 1, 1, *TURNS]) if jpeg else 1
        exif = Image.Exif()
        if turn != 1:
            image = image.transpose(TURNS[turn])
            exif[0x0112] = turn
        options = {"quality": self.rng.randint(70, 95), "exif": exif} if jpeg else {}
        image.save(os.path.join(self.out, name), **options)
        return name

    def add(self, task, turns, pictures=()):
        """turns: questions; the last one is asked, those before come with their answers."""
        number = self.count[task] = self.count.get(task, 0) + 1
        name = f"{task}-{number}"
        messages = []
        for i, q in enumerate(turns):
            content = [{"type": "image_url", "image_url": {"url": p}} for p in pictures if i == 0]
            messages.append({"role": "user", "content": [*content, {"type": "text", "text": q.prompt}]})
            messages.append({"role": "assistant", "content": q.answer})
        body = {"messages": messages[:-1], "max_tokens": 80}
        if turns[-1].schema:
            schema = {"name": "answer", "schema": turns[-1].schema}
            body["response_format"] = {"type": "json_schema", "json_schema": schema}
        self.jobs.append({"custom_id": name, "method": "POST", "url": "/v1/chat/completions", "body": body})
        self.expected.append({"custom_id": name, "task": task, "answer": turns[-1].answer})

    def write(self):
        for file, lines in (("jobs.jsonl", self.jobs), ("expected.jsonl", self.expected)):
            with open(os.path.join(self.out, file), "w") as f:
                f.writelines(json.dumps(line) + "\n" for line in lines)


def name_of(task, scene):
    if task == "caption":
        return f"caption_{len(scene.things)}" if scene.kind == "shapes" else f"caption_{scene.kind}"
    if task == "read":
        return "read_number" if scene.text.isdigit() else "read_word"
    return task


def about_pictures(out, kind):
    """Scenes until every task of this kind is full; each is asked what is wanted most."""
    tasks = [*questions.ASK[kind], "follow_up"]
    wanted = PICTURE_TASKS[kind]
    while any(out.wants(t) for t in wanted):
        scene = scenes.any_scene(out.rng, kind)
        found = []
        for task in out.rng.sample(tasks, len(tasks)):
            turns = questions.follow_up(out.rng, scene) if task == "follow_up" else [questions.ask(out.rng, scene, task)]
            name = name_of(task, scene)
            if turns and turns[-1] and out.wants(name) and (task != "follow_up" or out.rng.random() < 0.1):
                found.append((name, turns))
        if found:
            file = out.picture(scene)
            for name, turns in found[:MOST_OF_ONE_PICTURE]:
                out.add(name, turns, [file])


def about_two(out):
    while any(out.wants(t) for t in TWO_TASKS):
        both = [scenes.any_scene(out.rng) for _ in range(2)]
        if out.rng.random() < 0.7:
            both = [scenes.any_scene(out.rng, "shapes", (1, 1, 2, 3)) for _ in both]
        found = [q for t in TWO_TASKS if out.wants(t) and (q := questions.ask_two(out.rng, both, t))]
        if found:
            files = [out.picture(s) for s in both]
            for q in found:
                out.add(q.task, [q], files)


def without_pictures(out):
    for task in [*questions.TEXT_JOBS, "json_text_job"]:
        while out.wants(task):
            out.add(task, [questions.text_job(out.rng, task)])
    while out.wants("text_follow_up"):
        out.add("text_follow_up", questions.text_follow_up(out.rng))


def main():
    out = Set(sys.argv[1], *(int(v) for v in (sys.argv[2:4] + ["300", "1"][len(sys.argv) - 2:])))
    for kind in PICTURE_TASKS:
        about_pictures(out, kind)
    about_two(out)
    without_pictures(out)
    out.write()
    print(f"{len(out.jobs)} jobs of {len(out.count)} tasks, {out.pictures} pictures")


if __name__ == "__main__":
    main()
