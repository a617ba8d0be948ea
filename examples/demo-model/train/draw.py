"""Draws a scene at any size: pixels, and for every pixel which object it shows.

Fonts: DejaVu, from the system or from matplotlib's data, and the one that Pillow carries.
"""

import functools
import io
import math
import os

import numpy as np
from PIL import Image, ImageDraw, ImageFilter, ImageFont

import world
from processor import PATCH, cut, fit, grid
from scenes import SMALLEST_TEXT

OVERSAMPLE = 4  # shapes are drawn so much larger and averaged
FONT_FILES = ["DejaVuSans-Bold", "DejaVuSans", "DejaVuSansMono-Bold", "DejaVuSerif-Bold", "DejaVuSansMono", "DejaVuSerif"]
FONT_FOLDERS = ["/usr/share/fonts/truetype/dejavu", "/usr/share/fonts/dejavu", "/usr/share/fonts/TTF"]
STEPS = np.random.default_rng(5).standard_normal(1 << 18, dtype=np.float32)  # noise is cut from here


@functools.cache
def font_folder():
    folders = list(FONT_FOLDERS)
    try:
        import matplotlib
        folders.append(os.path.join(os.path.dirname(matplotlib.__file__), "mpl-data", "fonts", "ttf"))
    except ImportError:
        pass
    for folder in folders:
        if all(os.path.exists(os.path.join(folder, name + ".ttf")) for name in FONT_FILES):
            return folder
    raise FileNotFoundError("the DejaVu fonts are in none of " + ", ".join(folders))


@functools.cache
def font(number, size):
    if number == len(FONT_FILES):
        return ImageFont.load_default(size)
    return ImageFont.truetype(os.path.join(font_folder(), FONT_FILES[number] + ".ttf"), size)


@functools.lru_cache(1 << 14)
def glyph(number, size, character):
    """The coverage of one character, cut to its width; all characters of a font and size have the same height."""
    left, _, right, _ = font(number, size).getbbox(character)
    image = Image.new("L", (max(1, math.ceil(right - left)), size * 5 // 4), 0)
    ImageDraw.Draw(image).text((-left, 0), character, font=font(number, size), fill=255)
    return image


def circle(radius, n=48, x=0.0, y=0.0):
    turns = [2 * math.pi * i / n for i in range(n)]
    return [(x + radius * math.cos(t), y + radius * math.sin(t)) for t in turns]


def star():
    radii = [1.08 if i % 2 == 0 else 0.44 for i in range(10)]
    return [(r * math.sin(math.pi * i / 5), -r * math.cos(math.pi * i / 5)) for i, r in enumerate(radii)]


def heart():
    turns = [2 * math.pi * i / 36 for i in range(36)]
    return [(0.98 * math.sin(t) ** 3,
             -(0.78 * math.cos(t) - 0.30 * math.cos(2 * t) - 0.12 * math.cos(3 * t) - 0.06 * math.cos(4 * t)))
            for t in turns]


def cross(long=0.98, short=0.32):
    corner = [(short, long), (short, short), (long, short), (long, -short), (short, -short), (short, -long)]
    return corner + [(-x, -y) for x, y in corner]


# Outlines around a circle of radius 1: what is filled, then what is cut out.
OUTLINES = {
    "circle": (circle(0.95), None),
    "square": ([(-0.82, -0.82), (0.82, -0.82), (0.82, 0.82), (-0.82, 0.82)], None),
    "triangle": ([(0, -1), (0.98, 0.75), (-0.98, 0.75)], None),
    "star": (star(), None),
    "ring": (circle(0.96), circle(0.52)),
    "cross": (cross(), None),
    "heart": (heart(), None),
    "diamond": ([(0, -1.05), (0.72, 0), (0, 1.05), (-0.72, 0)], None),
    "moon": (circle(0.98), circle(0.82, x=0.5, y=-0.12)),
}


class Canvas:
    def __init__(self, width, height, colour, slope):
        y = np.linspace(-0.5, 0.5, height, dtype=np.float32)[:, None, None] * slope[1]
        x = np.linspace(-0.5, 0.5, width, dtype=np.float32)[None, :, None] * slope[0]
        base = np.asarray(colour, np.float32) + y + x
        self.image = Image.fromarray(base.clip(0, 255).astype(np.uint8))
        self.ids = Image.new("L", (width, height), 0)
        self.width, self.height = width, height

    def stamp(self, mask, left, top, colour, owner):
        self.image.paste(colour, (left, top), mask)
        self.ids.paste(owner, (left, top), mask.point(lambda v: 255 if v > 127 else 0))

    def shape(self, outline, x, y, radius, turn, colour, owner):
        half = math.ceil(radius * 1.2) + 1
        left, top = math.floor(x) - half, math.floor(y) - half
        mask = Image.new("L", (2 * half * OVERSAMPLE,) * 2, 0)
        cos, sin = math.cos(turn) * radius, math.sin(turn) * radius

        def place(points):
            return [((x - left + cos * u - sin * v) * OVERSAMPLE, (y - top + sin * u + cos * v) * OVERSAMPLE)
                    for u, v in points]

        pen = ImageDraw.Draw(mask)
        pen.polygon(place(outline[0]), fill=255)
        if outline[1]:
            pen.polygon(place(outline[1]), fill=0)
        self.stamp(mask.reduce(OVERSAMPLE), left, top, colour, owner)

    def box(self, left, top, right, bottom, colour, owner):
        """In pixels; at least one pixel wide and high."""
        left, top, right, bottom = (round(v) for v in (left, top, right, bottom))
        size = max(1, right - left), max(1, bottom - top)
        self.stamp(Image.new("L", size, 255), left, top, colour, owner)

    def line(self, text, number, size, left, top, colour, owner):
        """Characters one after the other, owned by owner, owner + 1, ...; nothing is kept if owner is 0."""
        for i, character in enumerate(text):
            mask = glyph(number, size, character)
            self.stamp(mask, left, top, colour, owner + i if owner else 0)
            left += mask.width + gap(size)


def gap(size):
    return max(1, size // 12)


def line_width(text, number, size):
    return sum(glyph(number, size, c).width for c in text) + gap(size) * (len(text) - 1)


def vary(colour, rng, by=14):
    return tuple(min(255, max(0, round(v + rng.uniform(-by, by)))) for v in colour)


def draw_shapes(scene, canvas, rng):
    short = min(canvas.width, canvas.height) / 3
    for owner, thing in enumerate(scene.things, 1):
        outline, colour = OUTLINES[thing.shape], vary(world.COLOURS[thing.colour], rng)
        x, y, radius = thing.x * canvas.width, thing.y * canvas.height, thing.radius * short
        if thing.rim < 1:
            canvas.shape(outline, x, y, radius, thing.turn, tuple(int(v * thing.rim) for v in colour), owner)
            radius -= 1.6
        canvas.shape(outline, x, y, radius, thing.turn, colour, owner)


def draw_text(scene, canvas, rng):
    scale = canvas.width / scene.size_seen[0]
    room = canvas.width - 4
    limit = min(canvas.height * 0.8, 90 * scale)
    widest = line_width(scene.text, scene.font, 40) / 40
    size = round(min(limit, room / widest) * scene.size)
    size = max(size, min(round(SMALLEST_TEXT * scale), int(room / widest)))
    while size > 8 and line_width(scene.text, scene.font, size) > room:
        size -= 1
    left = 2 + scene.at[0] * max(0, room - line_width(scene.text, scene.font, size))
    top = scene.at[1] * max(0, canvas.height - size * 5 // 4)
    canvas.line(scene.text, scene.font, size, int(left), int(top), vary(world.COLOURS[scene.colour], rng), 1)


def draw_page(scene, canvas, rng):
    """What is too long for its line goes on outside the picture."""
    scale, owner = canvas.width / scene.size_seen[0], 1
    for line in scene.page:
        left, top, size = (round(v * scale) for v in (line.left, line.top, line.size))
        canvas.line(line.text, line.font, size, left, top, vary(world.COLOURS[line.colour], rng), owner)
        owner += len(line.text)


def draw_flag(scene, canvas, rng):
    kind, names, _ = world.FLAGS[scene.flag]
    colours = [vary(world.COLOURS[name], rng, 18) for name in names.split()]
    left, top, width, height = (f * s for f, s in zip(scene.frame, (canvas.width, canvas.height) * 2))

    def box(x0, y0, x1, y1, colour):
        canvas.box(left + x0 * width, top + y0 * height, left + x1 * width, top + y1 * height, colour, 1)

    n = len(colours)
    if kind in "hv":
        for i, colour in enumerate(colours):
            box(*((0, i / n, 1, (i + 1) / n) if kind == "h" else (i / n, 0, (i + 1) / n, 1)), colour)
        return
    box(0, 0, 1, 1, colours[0])
    if kind == "o":
        canvas.shape(OUTLINES["circle"], left + width / 2, top + height / 2, height * 0.31, 0, colours[1], 1)
    elif kind == "x":
        box(0.28, 0, 0.42, 1, colours[1])
        box(0, 0.4, 1, 0.6, colours[1])
    else:
        thin, long = height * 0.1 / width, height * 0.3 / width
        box(0.5 - thin, 0.2, 0.5 + thin, 0.8, colours[1])
        box(0.5 - long, 0.4, 0.5 + long, 0.6, colours[1])


def draw_chart(scene, canvas, rng):
    """Bars stand on an axis, or lie to the right of one; letters are on the other side of it."""
    left, top, width, height = (f * s for f, s in zip(scene.frame, (canvas.width, canvas.height) * 2))
    size = round(max(SMALLEST_TEXT * 1.2 * canvas.width / scene.size_seen[0], height * 0.11))
    margin = size * 1.3 if scene.labels else 0
    dark = sum(world.BACKGROUNDS[scene.background]) < 300
    ink = (225, 225, 225) if dark else (40, 40, 40)
    pale = (90, 90, 90) if dark else (200, 200, 200)
    thick = max(1, canvas.width // 110)
    along = (height if scene.upright else width) - margin  # length of the longest bar
    each = (width if scene.upright else height) / len(scene.bars)

    def box(start, end, low, high, colour, owner):
        """start, end: along the axis; low, high: away from it."""
        if scene.upright:
            canvas.box(left + start, top + along - high, left + end, top + along - low, colour, owner)
        else:
            canvas.box(left + margin + low, top + start, left + margin + high, top + end, colour, owner)

    total = each * len(scene.bars)
    for i in range(scene.lines):
        level = along * (i + 1) / scene.lines
        box(0, total, level - thick, level, pale, 0)
    for i, bar in enumerate(scene.bars):
        box(each * (i + 0.15), each * (i + 0.85), 0, along * bar.value, vary(world.COLOURS[bar.colour], rng), i + 1)
        if scene.labels:
            middle = each * (i + 0.5)
            x = left + middle - size * 0.35 if scene.upright else left
            y = top + along + thick if scene.upright else top + middle - size * 0.6
            canvas.line(bar.name, scene.font, size, round(x), round(y), ink, len(scene.bars) + i + 1)
    box(0, total, -thick, 0, ink, 0)


def damage(image, scene, rng):
    if scene.damage["blur"]:
        image = image.filter(ImageFilter.GaussianBlur(scene.damage["blur"] * image.width / scene.size_seen[0]))
    if scene.damage["noise"]:
        pixels = np.asarray(image, np.float32)
        first = rng.randrange(STEPS.size // 2)
        noise = np.resize(STEPS[first:first + STEPS.size // 2], pixels.shape) * scene.damage["noise"]
        image = Image.fromarray((pixels + noise).clip(0, 255).astype(np.uint8))
    if scene.damage["jpeg"]:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=scene.damage["jpeg"])
        image = Image.open(file).convert("RGB")
    return image


def draw(scene, rng, full=False):
    """(picture, owner of every pixel as an "L" image); full: at the size of the file, else as the tower sees it."""
    width, height = scene.source if full else scene.size_seen
    ground = np.add(world.BACKGROUNDS[scene.background], scene.jitter)
    canvas = Canvas(width, height, ground, scene.slope)
    by_kind = {"shapes": draw_shapes, "text": draw_text, "page": draw_page, "flag": draw_flag, "chart": draw_chart}
    by_kind[scene.kind](scene, canvas, rng)
    return damage(canvas.image, scene, rng), canvas.ids


@functools.cache
def class_numbers():
    return ({name: i for i, name in enumerate(world.classes())}, {name: i for i, name in enumerate(world.colours())})


def owners(scene):
    """For each owner of pixels (0: nobody) its class, colour, place + 1, and 1 small or 2 large; 0 where there is none."""
    of, tint = class_numbers()
    rows = [(0, 0, 0, 0)]
    if scene.kind == "shapes":
        rows += [(of[t.shape], tint[t.colour], t.cell + 1, 1 + t.large) for t in scene.things]
    elif scene.kind == "text":
        rows += [(of[c], tint[scene.colour], 0, 0) for c in scene.text]
    elif scene.kind == "page":
        rows += [(of[c], tint[line.colour], 0, 0) for line in scene.page for c in line.text]
    elif scene.kind == "flag":
        rows += [(of[scene.flag], 0, 0, 0)]
    else:
        rows += [(of["bar"], tint[b.colour], 0, 0) for b in scene.bars]
        rows += [(of[b.name], 0, 0, 0) for b in scene.bars if scene.labels]
    return np.array(rows, np.uint8)


def seen(scene, rng):
    """What the model and its auxiliary heads get: (patches [n][588], labels [n][5], rows, columns). labels: class of the left
    and of the right half, then what owners() has of the whole."""
    image, ids = draw(scene, rng)
    rows, columns = grid(*fit(*scene.source))
    pixels = cut(np.asarray(image), rows, columns)
    cells = cut(np.asarray(ids), rows, columns)
    table = owners(scene)
    halves = cells.reshape(-1, PATCH, 2, PATCH // 2) + len(table) * np.arange(2 * len(cells)).reshape(-1, 1, 2, 1)
    area = np.bincount(halves.ravel(), minlength=2 * len(cells) * len(table)).reshape(-1, 2, len(table))[..., 1:]

    def largest(area, least):
        first = area.argmax(-1)
        return table[np.where(area.max(-1) >= least, first + 1, 0)]

    return pixels, np.concatenate([largest(area, 6)[..., 0], largest(area.sum(1), 12)[:, 1:]], 1), rows, columns
