"""What is in a picture: random scenes, described without pixels.

Places and lengths are fractions of the picture, so the same scene can be drawn at any size (draw.py); answers come from
the description (questions.py), never from pixels.
"""

from dataclasses import dataclass, field

import world
from processor import fit

FONTS = 7  # draw.py has as many
SMALLEST_TEXT = 11  # pixels, as the tower sees it
MOST_CHARACTERS = 250  # of a page: each is an owner of pixels, a byte
KINDS = {"shapes": 56, "text": 22, "flag": 8, "chart": 14}  # percent of the lessons' pictures


@dataclass
class Thing:
    """A shape. x, y: the centre; radius: of the shorter side of a cell of the 3 x 3 places."""

    colour: str
    shape: str
    large: bool
    cell: int
    x: float
    y: float
    radius: float
    turn: float
    rim: float  # brightness of its edge

    def name(self, size=True):
        return ("large " if self.large else "small ") * size + self.colour + " " + self.shape


@dataclass
class Bar:
    name: str  # as answers call it: a letter, or a colour
    colour: str
    value: float  # of the longest possible bar


@dataclass
class Line:
    text: str
    colour: str
    font: int
    left: float  # in pixels, as the tower sees it, like the others
    top: float
    size: float


@dataclass
class Scene:
    kind: str  # shapes, text, flag or chart; page, which no question is about
    source: tuple  # size of the file in pixels: width, height
    background: str
    slope: tuple = (0.0, 0.0)  # change of brightness over the picture
    jitter: tuple = (0, 0, 0)  # of the background's colour
    things: list = field(default_factory=list)
    page: list = field(default_factory=list)
    text: str = ""
    colour: str = ""
    font: int = 0
    size: float = 0.5  # of the largest size that fits
    at: tuple = (0.5, 0.5)  # of the free room left and above
    flag: str = ""
    frame: tuple = (0.0, 0.0, 1.0, 1.0)  # of flag or chart: left, top, width, height
    bars: list = field(default_factory=list)
    labels: bool = False
    upright: bool = True
    lines: int = 0  # across a chart
    damage: dict = field(default_factory=dict)  # noise, blur, jpeg: strength; 0 is none

    @property
    def size_seen(self):
        return fit(*self.source)


def pick_source(rng, shortest, widest):
    """A picture's size: near the limit, small, or large; never so narrow that things become invisible."""
    while True:
        if rng.random() < 0.4:
            source = rng.randint(100, 128), rng.randint(100, 128)
        else:
            width = int(100 * 10 ** rng.uniform(0, 0.95))
            aspect = rng.choice((1, 1, 4 / 3, 3 / 2, 16 / 9, 5 / 4, rng.uniform(1, widest)))
            source = width, max(1, round(width / aspect))
        if rng.random() < 0.5:
            source = source[::-1]
        if min(fit(*source)) >= shortest:
            return source


def start(rng, kind, background, shortest, widest):
    slope = rng.choice((0, 0, 18, 30))
    scene = Scene(kind, pick_source(rng, shortest, widest), background)
    scene.slope = rng.uniform(-slope, slope), rng.uniform(-slope, slope)
    scene.jitter = tuple(rng.randint(-9, 9) for _ in range(3))
    scene.damage = {
        "noise": rng.choice((0, 0, 3, 6)),
        "blur": rng.choice((0, 0, 0, rng.uniform(0.3, 0.9))),
        "jpeg": rng.choice((0, 0, 0, rng.randint(35, 90))),
    }
    return scene


def plain(scene, easy):
    """For the first lessons: nothing but dark on white."""
    if easy:
        scene.slope, scene.jitter, scene.damage = (0.0, 0.0), (0, 0, 0), {"noise": 0, "blur": 0, "jpeg": 0}
    return scene


def shapes(rng, count, easy=0):
    """easy 2: dark, large, on white; 1: any colour on white or black; 0: everything."""
    background = rng.choice((list(world.BACKGROUNDS), ("white", "black"), ("white",))[easy])
    colours = ["black", "blue"] if easy == 2 else [c for c in world.COLOURS if background in world.backgrounds_for(c)]
    scene = plain(start(rng, "shapes", background, 90, 1.6), easy)
    width, height = scene.size_seen
    short = min(width, height) / 3
    for cell in sorted(rng.sample(range(9), count)):
        large = rng.random() < (0.5, 0.7, 0.9)[easy]
        shape = rng.choice(list(world.SHAPES))
        if scene.things and rng.random() < 0.2:
            shape = scene.things[-1].shape
        radius = rng.uniform(0.40, 0.47) if large else rng.uniform(0.21, 0.27)
        slack = (0.5 - radius) * 0.8 + 0.03
        x, y = (
            (place + 0.5) / 3 + rng.uniform(-slack, slack) * short / side
            for place, side in ((cell % 3, width), (cell // 3, height))
        )
        scene.things.append(Thing(rng.choice(colours), shape, large, cell, x, y, radius, rng.uniform(-0.2, 0.2),
                                  rng.choice((1, 1, 0.6))))
    return scene


def pick_text(rng):
    kind = rng.random()
    if kind < 0.25:
        return rng.choice(world.CHARACTERS)
    if kind < 0.55:
        return rng.choice(world.WORDS)
    if kind < 0.75:
        return "".join(rng.choice(world.LETTERS) for _ in range(rng.randint(2, 6)))
    return "".join(rng.choice("0123456789") for _ in range(rng.randint(1, 5)))


def text(rng, easy=0):
    colour = "black" if easy else rng.choice(list(world.COLOURS))
    background = "white" if easy else rng.choice(world.backgrounds_for(colour))
    scene = plain(start(rng, "text", background, 56, 3.0), easy)
    scene.text, scene.colour, scene.font = pick_text(rng), colour, rng.randrange(FONTS)
    scene.size = rng.uniform(0.75, 1) if easy else rng.uniform(0.3, 1)
    scene.at = rng.random(), rng.random()
    return scene


def page(rng):
    """Many lines of characters, for the tower alone: as many letters as 20 pictures of one word."""
    background = rng.choice(list(world.BACKGROUNDS))
    colours = [c for c in world.COLOURS if background in world.backgrounds_for(c)]
    scene = start(rng, "page", background, 56, 3.0)
    width, height = scene.size_seen
    top, left_over = rng.uniform(0, 6), MOST_CHARACTERS
    while left_over > 0:
        size = SMALLEST_TEXT * 4 ** rng.random() ** 1.5
        if not scene.page:
            size = min(size, (height - top) / 1.3)
        if top + 1.25 * size > height:
            break
        count = min(left_over, int(width / (0.6 * size)))
        text = ""
        while len(text) < count:
            text += pick_text(rng)
        scene.page.append(Line(text[:count], rng.choice(colours), rng.randrange(FONTS), rng.uniform(1, 9), top, size))
        top += size * rng.uniform(1.1, 1.5)
        left_over -= count
    return scene


def flag(rng):
    scene = start(rng, "flag", rng.choice(("gray", "light blue", "black", "beige")), 70, 1.8)
    scene.flag = rng.choice(list(world.FLAGS))
    if rng.random() < 0.7:
        width, height = scene.size_seen
        w = rng.uniform(0.7, 0.95)
        h = min(0.9, w * width / height * rng.uniform(0.6, 0.7))
        scene.frame = rng.uniform(0, 1 - w), rng.uniform(0, 1 - h), w, h
    return scene


def pick_values(rng, count):
    """Different enough to be told apart by eye: steps of at least 0.09 of the longest."""
    steps = rng.sample(range(1, 11), count)
    return [min(1.0, step / 10 + rng.uniform(-0.005, 0.005)) for step in steps]


def chart(rng, easy=0):
    background = "white" if easy else rng.choice(("white", "white", "beige", "light blue", "gray", "black"))
    scene = plain(start(rng, "chart", background, 100, 1.6), easy)
    scene.labels = rng.random() < 0.5
    scene.upright = rng.random() < 0.7
    scene.lines = rng.choice((0, 0, 3, 4))
    scene.font = rng.randrange(FONTS)
    count = rng.randint(2, 5)
    colours = rng.sample([c for c in world.COLOURS if background in world.backgrounds_for(c)], count)
    if scene.labels and rng.random() < 0.4:
        colours = colours[:1] * count
    names = rng.sample("ABCDEFGH", count) if scene.labels else colours
    if scene.labels and rng.random() < 0.6:
        names = list("ABCDE"[:count])
    scene.bars = [Bar(n, c, v) for n, c, v in zip(names, colours, pick_values(rng, count))]
    w, h = rng.uniform(0.8, 0.94), rng.uniform(0.8, 0.94)
    scene.frame = rng.uniform(0.02, 0.98 - w), rng.uniform(0.02, 0.98 - h), w, h
    return scene


def any_scene(rng, kind=None, counts=(1, 2, 2, 3, 3, 4, 4, 5, 6), kinds=KINDS):
    """A picture of this kind, or of any in the mixture of the lessons."""
    kind = kind or rng.choices(list(kinds), kinds.values())[0]
    if kind == "shapes":
        return shapes(rng, rng.choice(counts))
    return {"text": text, "flag": flag, "chart": chart}[kind](rng)
