"""What the model knows: names of colours, shapes, places, flags, words and facts.

Every list is an enumeration whose order gives the classes of the auxiliary heads (classes(), below), so append, never
insert, while a checkpoint is to stay usable.
"""

SHAPES = {
    "circle": "circles", "square": "squares", "triangle": "triangles", "star": "stars", "ring": "rings",
    "cross": "crosses", "heart": "hearts", "diamond": "diamonds", "moon": "moons",
}
COLOURS = {
    "red": (215, 30, 35), "green": (30, 150, 50), "blue": (35, 70, 215), "yellow": (245, 215, 35),
    "orange": (245, 130, 20), "purple": (130, 40, 170), "pink": (250, 140, 190), "brown": (120, 72, 32),
    "black": (18, 18, 20), "white": (248, 248, 248),
}
BACKGROUNDS = {
    "white": (245, 245, 243), "black": (20, 20, 24), "gray": (132, 132, 134), "light blue": (172, 214, 240),
    "light green": (182, 232, 176), "beige": (232, 216, 180),
}
# (colour, background) that nobody could tell apart.
ALIKE = {
    ("black", "gray"), ("white", "beige"), ("yellow", "beige"), ("white", "light blue"), ("pink", "beige"),
    ("white", "white"), ("black", "black"),
}
CELLS = ["top left", "top", "top right", "left", "center", "right", "bottom left", "bottom", "bottom right"]
NUMBERS = ["None", "One", "Two", "Three", "Four", "Five", "Six"]
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
CHARACTERS = LETTERS + "0123456789"

# How the flag is made (h, v: stripes; o: disc; x: Nordic cross; p: plus), its colours, the capital.
FLAGS = {
    "Germany": ("h", "black red yellow", "Berlin"),
    "the Netherlands": ("h", "red white blue", "Amsterdam"),
    "Hungary": ("h", "red white green", "Budapest"),
    "Austria": ("h", "red white red", "Vienna"),
    "Estonia": ("h", "blue black white", "Tallinn"),
    "Poland": ("h", "white red", "Warsaw"),
    "Ukraine": ("h", "blue yellow", "Kyiv"),
    "France": ("v", "blue white red", "Paris"),
    "Italy": ("v", "green white red", "Rome"),
    "Ireland": ("v", "green white orange", "Dublin"),
    "Belgium": ("v", "black yellow red", "Brussels"),
    "Romania": ("v", "blue yellow red", "Bucharest"),
    "Japan": ("o", "white red", "Tokyo"),
    "Bangladesh": ("o", "green red", "Dhaka"),
    "Sweden": ("x", "blue yellow", "Stockholm"),
    "Denmark": ("x", "red white", "Copenhagen"),
    "Finland": ("x", "white blue", "Helsinki"),
    "Switzerland": ("p", "red white", "Bern"),
}
WORDS = """CAT DOG SUN MOON TREE FISH BIRD STAR BOOK LAMP DOOR ROAD BLUE RED GREEN STOP EXIT OPEN HELLO WORLD APPLE
BREAD WATER MUSIC HOUSE TABLE CHAIR PLANT RIVER STONE CLOUD LIGHT NIGHT SALE FREE TAXI BUS CAR SHOP CAFE BANK HOTEL PARK
ZOO MILK TEA ICE ART MAP KEY BOX CUP HAT PEN EGG JAM NUT OWL PIG RAT BEE ANT COW FOX HEN YES NO ON OFF UP DOWN IN OUT GO
START END NEW OLD HOT COLD""".split()

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
OPPOSITES = dict(pair.split("-") for pair in (
    "hot-cold big-small up-down left-right day-night old-new open-closed fast-slow high-low light-dark wet-dry "
    "full-empty").split())
MIXTURES = [
    ("red", "yellow", "orange"), ("blue", "yellow", "green"), ("red", "blue", "purple"), ("red", "white", "pink"),
    ("black", "white", "gray"),
]
FACTS = {
    "Who are you?": "I am a tiny demo model.",
    "What can you do?": "I describe simple images and answer short questions.",
    "Hello!": "Hello!",
    "How many days are in a week?": "Seven",
    "How many months are in a year?": "Twelve",
    "What colour is grass?": "Green",
    "What colour is snow?": "White",
    "What colour is coal?": "Black",
    "How many legs does a dog have?": "Four",
    "How many legs does a spider have?": "Eight",
    "What colour is a banana?": "Yellow",
    "How many sides does a triangle have?": "Three",
    "How many sides does a square have?": "Four",
    "Thank you!": "You are welcome.",
}


def classes():
    """Names of what a patch can show; 0 is the background."""
    return ["nothing", *SHAPES, *CHARACTERS, *FLAGS, "bar"]


def colours():
    """Colours of what a patch shows; 0: none, or several."""
    return ["none", *COLOURS]


def backgrounds_for(colour):
    return [b for b in BACKGROUNDS if (colour, b) not in ALIKE]


def place(cell):
    name = CELLS[cell]
    if name == "center":
        return "in the center"
    return ("at the " if " " in name or name in ("top", "bottom") else "on the ") + name


def a(noun):
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def capital_letter(text):
    return text[0].upper() + text[1:]
