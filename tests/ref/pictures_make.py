"""Small picture files of every kind, and damage to them: building blocks of pictures.py."""

import io
import os
import struct
import subprocess
import tempfile
import zlib

import numpy as np
from PIL import Image

W, H = 37, 29


def scene(w=W, h=H, seed=7):
    """Slopes, a dark disc, a bright bar, a little noise: RGB array."""
    y, x = np.mgrid[0:h, 0:w].astype(float)
    a = np.stack([40 + x * 180 / w, 220 - y * 180 / h, 60 + (x + y) * 150 / (w + h)], -1)
    a[(x - w * 0.3) ** 2 + (y - h * 0.5) ** 2 < (h * 0.3) ** 2] = (20, 30, 90)
    a[int(h * 0.7):int(h * 0.8), int(w * 0.5):] = (250, 240, 10)
    a += np.random.default_rng(seed).normal(0, 6, a.shape)
    return np.clip(a, 0, 255).astype(np.uint8)


def alpha(w=W, h=H):
    y, x = np.mgrid[0:h, 0:w].astype(float)
    a = np.clip((x - w * 0.2) * 512 / w, 0, 255)
    a[:, : w // 8] = 0
    a[h // 2 :, w // 2 :] = 255
    return a.astype(np.uint8)


RGB = Image.fromarray(scene())
GREY = RGB.convert("L")
RGBA = Image.fromarray(np.dstack([scene(), alpha()]))
LA = Image.merge("LA", (GREY, Image.fromarray(alpha())))
PALETTE = RGB.quantize(16, dither=Image.Dither.NONE)
CMYK = RGB.convert("CMYK")


def save(im, form, **kw):
    f = io.BytesIO()
    im.save(f, form, **kw)
    return f.getvalue()


def exif(orientation, big=False, ident=b""):
    e = ">" if big else "<"
    return (ident + (b"MM" if big else b"II") + struct.pack(e + "HIH", 42, 8, 2) +
            struct.pack(e + "HHIHH", 0x010F, 3, 1, 7, 0) + struct.pack(e + "HHIHH", 0x0112, 3, 1, orientation, 0) +
            struct.pack(e + "I", 0))


# JPEG -----------------------------------------------------------------------------------------------------------------

_tool = None


def jpeg_tool():
    global _tool
    if not _tool:
        _tool = os.path.join(tempfile.mkdtemp(), "jpeg_variants")
        subprocess.run(["cc", "-o", _tool, os.path.join(os.path.dirname(__file__), "jpeg_variants.c"), "-ljpeg"], check=True)
    return _tool


def jpeg_variant(kind, im=None):
    cmyk = kind == "ycck" or kind.startswith("cmyk")
    im = im or (CMYK if cmyk else RGB)
    raw = np.array(im)
    if cmyk:
        raw = 255 - raw  # stored inverted, as Adobe does
    return subprocess.run([jpeg_tool(), kind, str(im.width), str(im.height)], input=raw.tobytes(), check=True,
                          stdout=subprocess.PIPE).stdout


def jpeg_segment(data, marker, payload):
    """data with one more segment right after SOI."""
    return data[:2] + struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload + data[2:]


def jpeg_find(data, marker):
    at = 2
    while data[at + 1] != marker:
        at += 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]
    return at


def jpeg_sof(data, offset, value):
    """One byte of the frame header changed; offset from the marker."""
    at = next(i for m in (0xC0, 0xC1, 0xC2) for i in [_try(jpeg_find, data, m)] if i)
    return data[: at + offset] + bytes([value]) + data[at + offset + 1 :]


def _try(f, *a):
    try:
        return f(*a)
    except (IndexError, struct.error):
        return None


def jpeg_scan(data):
    at = jpeg_find(data, 0xDA)
    return at + 2 + struct.unpack(">H", data[at + 2 : at + 4])[0]


# PNG ------------------------------------------------------------------------------------------------------------------

SIGNATURE = b"\x89PNG\r\n\x1a\n"


def chunk(name, data=b"", crc=None):
    c = zlib.crc32(name + data) if crc is None else crc
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", c)


def ihdr(w, h, depth, kind, interlace=0):
    return chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, kind, 0, 0, interlace))


def png_rows(a, depth):
    """a: [h][w][channels] sample values. Packed rows, filter 0."""
    h, w, n = a.shape
    if depth == 16:
        rows = a.astype(">u2").reshape(h, -1).view(np.uint8).reshape(h, -1)
    elif depth == 8:
        rows = a.astype(np.uint8).reshape(h, -1)
    else:
        bits = ((a.reshape(h, w * n, 1) >> np.arange(depth)[::-1]) & 1).reshape(h, -1)
        rows = np.packbits(bits.astype(np.uint8), axis=1)
    return b"".join(b"\0" + r.tobytes() for r in rows)


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(a, depth, kind, before=b"", after=b"", interlace=False, rows=None, idat=None):
    """before, after: chunks around IDAT; rows: raw bytes instead of a's; idat: compressed bytes instead."""
    a = a[..., None] if a.ndim == 2 else a
    h, w = a.shape[:2]
    if rows is None:
        if interlace:
            rows = b"".join(png_rows(p, depth) for x, y, sx, sy in ADAM7 for p in [a[y::sy, x::sx]] if p.size)
        else:
            rows = png_rows(a, depth)
    data = zlib.compress(rows, 9) if idat is None else idat
    return (SIGNATURE + ihdr(w, h, depth, kind, int(interlace)) + before + chunk(b"IDAT", data) + after + chunk(b"IEND"))


def png_palette(depth, before=b"", **kw):
    im = RGB.quantize(1 << depth, dither=Image.Dither.NONE)
    colours = bytes(im.getpalette()[: 3 << depth]).ljust(3 << depth, b"\0")
    return png(np.array(im).astype(int), depth, 3, chunk(b"PLTE", colours) + before, **kw)


# GIF ------------------------------------------------------------------------------------------------------------------

def gif_codes(index, bits):
    """LZW without compression: a clear code before the table grows the code size."""
    acc = n = 0
    out = bytearray()
    clear, size = 1 << bits, bits + 1

    def put(code):
        nonlocal acc, n
        acc |= code << n
        n += size
        while n >= 8:
            out.append(acc & 255)
            acc >>= 8
            n -= 8

    for i, v in enumerate(index):
        if i % ((1 << bits) - 2) == 0:
            put(clear)
        put(v)
    put(clear + 1)
    if n:
        out.append(acc & 255)
    return bytes(out)


def gif_blocks(data):
    return b"".join(bytes([len(data[i : i + 255])]) + data[i : i + 255] for i in range(0, len(data), 255)) + b"\0"


def gif_frame(index, x=0, y=0, bits=4, local=b"", interlace=False, clear=None, data=None):
    h, w = index.shape
    order = [*range(0, h, 8), *range(4, h, 8), *range(2, h, 4), *range(1, h, 2)] if interlace else range(h)
    codes = gif_codes(index[list(order)].ravel().tolist(), bits) if data is None else data
    flags = (0x40 if interlace else 0) | (0x80 | (len(local) // 3).bit_length() - 2 if local else 0)
    control = b"" if clear is None else b"!\xf9\x04\x01\0\0" + bytes([clear]) + b"\0"
    return control + b"," + struct.pack("<HHHHB", x, y, w, h, flags) + local + bytes([bits]) + gif_blocks(codes)


def gif(frames, w=W, h=H, colours=b"", version=b"89a"):
    flags = 0x80 | (len(colours) // 3).bit_length() - 2 if colours else 0
    return b"GIF" + version + struct.pack("<HHBBB", w, h, flags, 0, 0) + colours + b"".join(frames) + b";"


INDEX = np.array(PALETTE)
COLOURS = bytes(PALETTE.getpalette()[:48]).ljust(48, b"\0")

# BMP ------------------------------------------------------------------------------------------------------------------


def bmp(bits, rows, w=W, h=H, palette=b"", compression=0, masks=b"", header=40, colours=0, offset=None):
    """rows: bytes as stored."""
    if header == 12:
        info = struct.pack("<IHHHH", 12, w, h, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", header, w, h, 1, bits, compression, len(rows), 2835, 2835, colours, 0)
        if header > 40:
            info = (info + masks).ljust(header, b"\0")
            masks = b""
    at = 14 + len(info) + len(masks) + len(palette)
    return b"BM" + struct.pack("<IHHI", at + len(rows), 0, 0, at if offset is None else offset) + info + masks + palette + rows


def bmp_rows(a, bits, flip=True):
    """a: [h][w] pixel values of `bits` bits."""
    out = []
    for row in a[::-1] if flip else a:
        if bits < 8:
            packed = np.packbits(((row[:, None] >> np.arange(bits)[::-1]) & 1).astype(np.uint8)).tobytes()
        elif bits == 24:
            packed = b"".join(int(v).to_bytes(3, "little") for v in row)
        else:
            packed = row.astype(f"<u{bits // 8}").tobytes()
        out.append(packed + b"\0" * (-len(packed) % 4))
    return b"".join(out)


def bmp_palette(colours):
    return b"".join(bytes([colours[i + 2], colours[i + 1], colours[i], 0]) for i in range(0, len(colours), 3))


def pixels_of(shift_r, shift_g, shift_b, bits=(8, 8, 8), a=None):
    s = scene().astype(np.uint64)
    v = ((s[..., 0] >> (8 - bits[0])) << shift_r) | ((s[..., 1] >> (8 - bits[1])) << shift_g) | (
        (s[..., 2] >> (8 - bits[2])) << shift_b)
    return v if a is None else v | (alpha().astype(np.uint64) << a)


def rle8(a):
    """Runs where they are, plain stretches where not, ends of lines, end of picture."""
    out = bytearray()
    for row in a[::-1]:
        i = 0
        while i < len(row):
            n = 1
            while i + n < len(row) and row[i + n] == row[i] and n < 255:
                n += 1
            if n >= 2 or len(row) - i < 3:
                out += bytes([n, row[i]])
                i += n
                continue
            lit = [int(v) for v in row[i : i + 5]]
            if len(lit) < 3:
                out += bytes([1, row[i]])
                i += 1
                continue
            out += bytes([0, len(lit)]) + bytes(lit) + b"\0" * (len(lit) % 2)
            i += len(lit)
        out += b"\0\0"
    return bytes(out + b"\0\1")


def rle4(a):
    out = bytearray()
    for row in a[::-1]:
        for i in range(0, len(row), 6):
            v = [int(x) for x in row[i : i + 6]]
            if len(v) >= 3 and i % 12 == 0:
                packed = [(v[k] << 4) | (v[k + 1] if k + 1 < len(v) else 0) for k in range(0, len(v), 2)]
                out += bytes([0, len(v)]) + bytes(packed) + b"\0" * (len(packed) % 2)
            else:
                for x in v:
                    out += bytes([1, x << 4])
        out += b"\0\0"
    return bytes(out + b"\0\1")


# WebP -----------------------------------------------------------------------------------------------------------------


def riff(chunks):
    body = b"WEBP" + b"".join(n + struct.pack("<I", len(d)) + d + b"\0" * (len(d) % 2) for n, d in chunks)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def webp_chunks(data):
    at, out = 12, []
    while at + 8 <= len(data):
        n = struct.unpack("<I", data[at + 4 : at + 8])[0]
        out.append((data[at : at + 4], data[at + 8 : at + 8 + n]))
        at += 8 + n + n % 2
    return out


def vp8x(flags, w, h):
    return b"VP8X", bytes([flags, 0, 0, 0]) + struct.pack("<I", w - 1)[:3] + struct.pack("<I", h - 1)[:3]


def anmf(chunks, x, y, w, h):
    head = b"".join(struct.pack("<I", v)[:3] for v in (x // 2, y // 2, w - 1, h - 1, 100)) + b"\0"
    return b"ANMF", head + riff(chunks)[12:]
