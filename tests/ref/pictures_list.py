"""The files of the picture table and the outcome each must have, by hand."""

import struct
import zlib
from dataclasses import dataclass, field

import numpy as np
from PIL import Image
from pictures_make import *  # noqa: F403


@dataclass
class Case:
    name: str
    data: bytes
    code: str = "ok"
    words: str = ""
    format: str = ""
    orientation: int = 1
    frames: int = 1
    warnings: list = field(default_factory=list)
    lenient: str = ""
    lenient_words: str = ""
    reference: object = None  # instead of what Pillow makes of the file
    other_pixels: bool = False  # Pillow's differ


CASES = []
TRUNCATED, UNREADABLE, UNSUPPORTED, LARGE = ("image_" + c for c in ("truncated", "unreadable", "unsupported", "too_large"))


def good(name, data, *warns, form=None, **kw):
    form = form or {"jpg": "jpeg"}.get(name.split(".")[-1], name.split(".")[-1])
    CASES.append(Case(name, data, format=form, warnings=list(warns), **kw))


def bad(name, data, code, words, lenient="", lenient_words=""):
    CASES.append(Case(name, data, code, words, lenient=lenient, lenient_words=lenient_words))


def damaged(name, data, code, words):
    """Refused, shown with a warning when lenient."""
    bad(name, data, code, words, "ok", "damaged: ")


GREY_WARN, PALETTE_WARN, BITS_WARN = "grey picture", "palette picture", "16-bit picture reduced to 8 bits"
CMYK_WARN, PROFILE_WARN = "CMYK converted to RGB without its colour profile", "colour profile ignored"
COLOUR_WARN = "transparent colour shown as it is"

# JPEG -----------------------------------------------------------------------------------------------------------------
plain = save(RGB, "JPEG", quality=90)
progressive = save(RGB, "JPEG", quality=90, progressive=True)
for name, sub in (("444", 0), ("422", 1), ("420", 2)):
    good(f"baseline_{name}.jpg", save(RGB, "JPEG", quality=90, subsampling=sub))
for kind in ("s440", "s411", "s410", "s441", "odd", "luma_low", "arithmetic", "arithmetic_progressive", "restart", "scans",
             "rgb"):
    good(f"{kind}.jpg", jpeg_variant(kind))
good("scans_100.jpg", jpeg_variant("scans_100"))
good("progressive.jpg", progressive)
good("optimised.jpg", save(RGB, "JPEG", quality=60, optimize=True))
good("grey.jpg", save(GREY, "JPEG", quality=90), GREY_WARN)
good("grey_progressive.jpg", save(GREY, "JPEG", quality=90, progressive=True), GREY_WARN)
good("cmyk.jpg", save(CMYK, "JPEG", quality=90), CMYK_WARN)
good("ycck.jpg", jpeg_variant("ycck"), CMYK_WARN)
good("cmyk_no_adobe.jpg", jpeg_variant("cmyk_no_adobe"), CMYK_WARN)
for n in range(1, 9):
    good(f"exif_{n}.jpg", save(RGB, "JPEG", quality=90, exif=exif(n, big=n % 2 == 0, ident=b"Exif\0\0")), orientation=n)
good("exif_9.jpg", save(RGB, "JPEG", quality=90, exif=exif(9, ident=b"Exif\0\0")))
good("exif_broken.jpg", jpeg_segment(plain, 0xE1, b"Exif\0\0II*\0\xff\xff\xff\xff"))
good("exif_thumbnail.jpg", jpeg_segment(plain, 0xE1, exif(6, ident=b"Exif\0\0") + save(GREY, "JPEG")), orientation=6)
good("icc.jpg", save(RGB, "JPEG", quality=90, icc_profile=b"\0" * 200), PROFILE_WARN)
good("comment.jpg", save(RGB, "JPEG", quality=90, comment=b"hello"))
good("fill_bytes.jpg", plain[:2] + b"\xff\xff\xff" + plain[2:])
good("garbage_behind.jpg", plain + b"garbage" * 9)
good("two_pictures.jpg", plain + save(GREY, "JPEG"))
good("jpeg_named.png", plain, form="jpeg")
scan = jpeg_scan(plain)
damaged("cut_half.jpg", plain[: scan + (len(plain) - scan) // 2], TRUNCATED, "remature end")
damaged("no_end_marker.jpg", plain[:-2], TRUNCATED, "remature end")
damaged("cut_4.jpg", plain[:-6], TRUNCATED, "remature end")
damaged("cut_half_marked.jpg", plain[: scan + (len(plain) - scan) // 2] + b"\xff\xd9", TRUNCATED, "remature end")
damaged("cut_progressive.jpg", progressive[: len(progressive) * 2 // 3], TRUNCATED, "remature end")
damaged("cut_no_scan.jpg", plain[:scan], TRUNCATED, "remature end")
bad("cut_header.jpg", plain[:200], TRUNCATED, "inside its header at byte 200")
bad("only_start.jpg", plain[:3], TRUNCATED, "inside its header")
damaged("zeroed.jpg", plain[: scan + 100] + b"\xff\x00" * 50 + plain[scan + 200 :], UNREADABLE, "")
damaged("marker_inside.jpg", plain[: scan + 200] + b"\xff\xd3" + plain[scan + 202 :], UNREADABLE, "")
damaged("restart_lost.jpg", (lambda d, s: d[:s] + d[s:].replace(b"\xff\xd0", b"", 1))(
    jpeg_variant("restart"), jpeg_scan(jpeg_variant("restart"))), UNREADABLE, "")
bad("no_tables.jpg", plain[: jpeg_find(plain, 0xDB)] + plain[jpeg_find(plain, 0xC0) :], UNREADABLE, "uantization table")
bad("ends_at_once.jpg", b"\xff\xd8\xff\xd9" + plain, UNREADABLE, "before any picture")
bad("no_frame.jpg", plain[: jpeg_find(plain, 0xC0)] + plain[jpeg_find(plain, 0xDA) :], UNREADABLE, "before any frame")
bad("height_open.jpg", jpeg_sof(jpeg_sof(plain, 5, 0), 6, 0), UNSUPPORTED, "DNL")
bad("width_0.jpg", jpeg_sof(jpeg_sof(plain, 7, 0), 8, 0), UNREADABLE, "0 x 29")
bad("bits_12.jpg", jpeg_sof(plain, 4, 12), UNSUPPORTED, "12 bits")
bad("components_2.jpg", jpeg_sof(plain, 9, 2), UNSUPPORTED, "2 colour components")
bad("lossless.jpg", plain.replace(b"\xff\xc0", b"\xff\xc3", 1), UNSUPPORTED, "lossless")
bad("claims_65535.jpg", plain[: jpeg_find(plain, 0xC0) + 5] + b"\xff\xff\xff\xff" + plain[jpeg_find(plain, 0xC0) + 9 :],
    LARGE, "65535 x 65535")
bad("scans_1135.jpg", jpeg_variant("scans_1135"), LARGE, "more than 100 scans")

# PNG ------------------------------------------------------------------------------------------------------------------
g8 = np.array(GREY).astype(int)
rgb8 = scene().astype(int)
rgba8, la8 = np.array(RGBA).astype(int), np.array(LA).astype(int)
low = np.random.default_rng(3).integers(0, 256, rgb8.shape)
rgb16, g16 = rgb8 * 256 + low, g8 * 256 + low[..., 0]
rgba16 = np.dstack([rgb16, alpha().astype(int) * 256 + low[..., 1]])
la16 = np.dstack([g16, alpha().astype(int) * 256 + low[..., 1]])
key16 = g16.copy()
key16[:10, :10] = 0x1234
masked = np.where(key16 == 0x1234, 0, 255).astype(np.uint8)

good("grey_1.png", png(g8 >> 7, 1, 0), "one-bit picture")
good("grey_2.png", png(g8 >> 6, 2, 0), GREY_WARN)
good("grey_4.png", png(g8 >> 4, 4, 0), GREY_WARN)
good("grey_8.png", png(g8, 8, 0), GREY_WARN)
good("grey_16.png", png(g16, 16, 0), BITS_WARN, GREY_WARN, reference=Image.fromarray((g16 >> 8).astype(np.uint8)),
     other_pixels=True)
good("grey_16_trns.png", png(key16, 16, 0, chunk(b"tRNS", b"\x12\x34")), BITS_WARN, GREY_WARN,
     reference=Image.merge("LA", (Image.fromarray((key16 >> 8).astype(np.uint8)), Image.fromarray(masked))),
     other_pixels=True)
good("rgb_8.png", png(rgb8, 8, 2))
good("rgb_16.png", png(rgb16, 16, 2), BITS_WARN)
good("grey_alpha_8.png", png(la8, 8, 4), GREY_WARN)
good("grey_alpha_16.png", png(la16, 16, 4), BITS_WARN, GREY_WARN)
good("rgba_8.png", png(rgba8, 8, 6))
good("rgba_16.png", png(rgba16, 16, 6), BITS_WARN)
good("rgba_clear.png", png(np.dstack([scene(), 0 * alpha()]).astype(int), 8, 6))
for depth in (1, 2, 4, 8):
    good(f"palette_{depth}.png", png_palette(depth), PALETTE_WARN)
good("palette_trns.png", png_palette(4, chunk(b"tRNS", bytes(range(0, 250, 25)))), PALETTE_WARN)
good("palette_trns_one.png", png_palette(4, chunk(b"tRNS", b"\xff\xff\0\xff")), PALETTE_WARN)
good("grey_1_trns.png", png(g8 >> 7, 1, 0, chunk(b"tRNS", b"\0\1")), "one-bit picture")
good("grey_2_trns.png", png(g8 >> 6, 2, 0, chunk(b"tRNS", b"\0\0")), GREY_WARN)
good("grey_8_trns.png", png(g8 // 16 * 16, 8, 0, chunk(b"tRNS", b"\0\x80")), GREY_WARN)
good("rgb_8_trns.png", png(rgb8, 8, 2, chunk(b"tRNS", struct.pack(">HHH", 20, 30, 90))), COLOUR_WARN)
good("interlaced_rgb.png", png(rgb8, 8, 2, interlace=True))
good("interlaced_rgba_16.png", png(rgba16, 16, 6, interlace=True), BITS_WARN)
good("interlaced_palette.png", png_palette(4, interlace=True), PALETTE_WARN)
good("interlaced_1.png", png(g8 >> 7, 1, 0, interlace=True), "one-bit picture")
good("filters.png", save(RGB, "PNG"))
good("exif_6.png", png(rgb8, 8, 2, chunk(b"eXIf", exif(6))), orientation=6)
good("exif_behind_8.png", png(rgb8, 8, 2, after=chunk(b"eXIf", exif(8, big=True))), orientation=8)
good("icc.png", png(rgb8, 8, 2, chunk(b"iCCP", b"p\0\0" + zlib.compress(b"\0" * 200))), PROFILE_WARN)
good("gamma.png", png(rgb8, 8, 2, chunk(b"gAMA", struct.pack(">I", 100000))))
good("text_bomb.png", png(rgb8, 8, 2, after=chunk(b"zTXt", b"k\0\0" + zlib.compress(b"\0" * (1 << 20), 9))))
good("apng.png", save(RGB, "PNG", save_all=True, append_images=[RGB.rotate(180)] * 2), "first of 3 frames", frames=3)
good("garbage_behind.png", png(rgb8, 8, 2) + b"garbage")
good("no_idat_limit.png", SIGNATURE + ihdr(W, H, 8, 2) + b"".join(
    chunk(b"IDAT", zlib.compress(png_rows(rgb8, 8))[i : i + 99]) for i in range(0, 4000, 99)) + chunk(b"IEND"))
good("surplus_rows.png", png(rgb8, 8, 2, rows=png_rows(rgb8, 8) + b"\0" * 400))
good("one_pixel.png", png(rgb8[:1, :1], 8, 2))
good("tall.png", png(np.arange(4000 * 3).reshape(4000, 1, 3) % 251, 8, 2))
good("wide.png", png(np.arange(4000 * 3).reshape(1, 4000, 3) % 251, 8, 2))
good("ratio_10000.png", png(np.arange(10000).reshape(1, 10000) % 251, 8, 0), GREY_WARN)
bad("ratio_10001.png", png(np.arange(10001).reshape(10001, 1) % 251, 8, 0), LARGE, "1 x 10001: one side is more than 10000")
good("frames_10000.png", png(rgb8, 8, 2, chunk(b"acTL", struct.pack(">II", 10000, 0))), "first of 10000 frames", frames=10000)
bad("frames_claimed.png", png(rgb8, 8, 2, chunk(b"acTL", struct.pack(">II", 0xFFFFFFFF, 0))), LARGE, "4294967295 frames")
good("png_named.jpg", png(rgb8, 8, 2), form="png")
whole = png(rgb8, 8, 2)
damaged("cut_half.png", whole[: len(whole) // 2], TRUNCATED, "inside a chunk")
damaged("cut_no_end.png", whole[:-12], TRUNCATED, "inside a chunk")
bad("cut_header.png", whole[:20], TRUNCATED, "inside its header")
bad("cut_before_pixels.png", whole[:33], TRUNCATED, "inside its header")
flip = bytearray(whole)
flip[len(whole) // 2] ^= 1
damaged("flipped_bit.png", bytes(flip), UNREADABLE, "IDAT")
damaged("crc_pixels.png", whole[:-16] + b"\0\0\0\0" + whole[-12:], UNREADABLE, "CRC error")
damaged("crc_header.png", whole[:29] + b"\0\0\0\0" + whole[33:], UNREADABLE, "CRC error")
damaged("crc_extra.png", png(rgb8, 8, 2, chunk(b"tEXt", b"k\0v", crc=1)), UNREADABLE, "CRC error")
damaged("crc_palette.png", png_palette(4).replace(chunk(b"PLTE", COLOURS)[-4:], b"\1\2\3\4"), UNREADABLE, "CRC error")
packed = zlib.compress(png_rows(rgb8, 8))
damaged("short_rows.png", png(rgb8, 8, 2, rows=png_rows(rgb8[:20], 8)), TRUNCATED, "Not enough")
damaged("cut_stream.png", png(rgb8, 8, 2, idat=packed[: len(packed) // 2]), TRUNCATED, "Not enough")
damaged("broken_stream.png", png(rgb8, 8, 2, idat=packed[:300] + b"\xff" * 60 + packed[360:]), UNREADABLE, "")
damaged("checksum_stream.png", png(rgb8, 8, 2, idat=packed[:-4] + b"\0\0\0\0"), UNREADABLE, "IDAT")
damaged("bad_filter.png", png(rgb8, 8, 2, rows=b"\x09" + png_rows(rgb8, 8)[1:]), UNREADABLE, "filter")
damaged("index_outside.png", png(INDEX.astype(int), 8, 3, chunk(b"PLTE", COLOURS[:24])), UNREADABLE, "outside the palette")
bad("no_palette.png", png(INDEX.astype(int), 8, 3), UNREADABLE, "PLTE")
bad("no_pixels.png", SIGNATURE + ihdr(W, H, 8, 2) + chunk(b"IEND"), UNREADABLE, "no pixels")
bad("no_header.png", SIGNATURE + whole[33:], UNREADABLE, "does not begin with IHDR")
bad("bits_3.png", SIGNATURE + ihdr(W, H, 3, 2) + whole[33:], UNREADABLE, "colour type 2 with 3 bits")
bad("type_5.png", SIGNATURE + ihdr(W, H, 8, 5) + whole[33:], UNREADABLE, "colour type 5")
bad("width_0.png", SIGNATURE + ihdr(0, H, 8, 2) + whole[33:], UNREADABLE, "0 x 29")
bad("bomb_30000.png", SIGNATURE + ihdr(30000, 30000, 8, 2) + chunk(b"IDAT", zlib.compress(b"\0" * (3 << 20), 9)) +
    chunk(b"IEND"), LARGE, "900000000 pixels")
bad("claims_2e31.png", SIGNATURE + ihdr(0x7FFFFFFF, 0x7FFFFFFF, 8, 2) + whole[33:], LARGE, "2147483647 x 2147483647")

# GIF ------------------------------------------------------------------------------------------------------------------
RAMP = bytes(v for i in range(256) for v in (i, i, i))
grey_index = np.array(GREY)
good("plain.gif", save(RGB, "GIF"), PALETTE_WARN)
good("version_87a.gif", gif([gif_frame(INDEX)], colours=COLOURS, version=b"87a"), PALETTE_WARN)
good("clear.gif", gif([gif_frame(INDEX, clear=3)], colours=COLOURS), PALETTE_WARN)
good("interlaced.gif", gif([gif_frame(INDEX, interlace=True)], colours=COLOURS), PALETTE_WARN)
good("grey.gif", gif([gif_frame(grey_index, bits=8)], colours=RAMP), GREY_WARN)
good("grey_clear.gif", gif([gif_frame(grey_index // 16 * 16, bits=8, clear=128)], colours=RAMP), GREY_WARN)
good("no_palette.gif", gif([gif_frame(grey_index, bits=8)]), GREY_WARN)
good("local_palette.gif", gif([gif_frame(INDEX, local=COLOURS)], colours=RAMP[:48]), PALETTE_WARN)
good("local_grey.gif", gif([gif_frame(INDEX, local=RAMP[:48])], colours=COLOURS), GREY_WARN,
     reference=Image.fromarray(INDEX), other_pixels=True)
good("small_frame.gif", gif([gif_frame(INDEX[:20, :22], x=9, y=5)], colours=COLOURS), PALETTE_WARN)
good("small_frame_clear.gif", gif([gif_frame(INDEX[:20, :22], x=9, y=5, clear=2)], colours=COLOURS), PALETTE_WARN)
good("large_frame.gif", gif([gif_frame(INDEX, x=3, y=4)], w=20, h=11, colours=COLOURS), PALETTE_WARN)
good("animated.gif", save(RGB, "GIF", save_all=True, append_images=[RGB.rotate(90), RGB.rotate(180)]), PALETTE_WARN,
     "first of 3 frames", frames=3)
good("no_trailer.gif", gif([gif_frame(INDEX)], colours=COLOURS)[:-1], PALETTE_WARN)
good("clear_outside.gif", gif([gif_frame(INDEX[:20, :22], x=9, y=5, clear=200)], colours=COLOURS), PALETTE_WARN)
some = gif([gif_frame(INDEX)], colours=COLOURS)
bad("frames_10001.gif", gif([gif_frame(INDEX)] + [b",\0\0\0\0\1\0\1\0\0\2\0"] * 10000, colours=COLOURS), LARGE, "10001 frames")
damaged("cut_half.gif", some[: len(some) // 2], TRUNCATED, "pixels are missing")
damaged("ends_early.gif", gif([gif_frame(INDEX, data=gif_codes(INDEX[:9].ravel().tolist(), 4))], colours=COLOURS), TRUNCATED,
        "pixels are missing")
bad("cut_header.gif", some[:30], TRUNCATED, "inside its header")
damaged("bad_code.gif", gif([gif_frame(INDEX, data=b"\xff" * 60)], colours=COLOURS), UNREADABLE, "never defined")
damaged("index_outside.gif", gif([gif_frame(INDEX)], colours=COLOURS[:24]), UNREADABLE, "outside the palette")
bad("no_frame.gif", gif([], colours=COLOURS), UNREADABLE, "holds no picture")
bad("code_size.gif", gif([gif_frame(INDEX, bits=12, data=b"\0" * 40)], colours=COLOURS), UNREADABLE, "code size", "ok",
    "damaged: ")
bad("size_0.gif", gif([gif_frame(INDEX[:0])], w=0, h=0, colours=COLOURS), UNREADABLE, "x 0 pixels")

# BMP ------------------------------------------------------------------------------------------------------------------
flat = pixels_of(16, 8, 0)
two = bmp_palette(bytes([200, 10, 30, 20, 220, 60]))
good("bits_1.bmp", bmp(1, bmp_rows(g8 >> 7, 1), palette=two), PALETTE_WARN)
good("black_white.bmp", bmp(1, bmp_rows(g8 >> 7, 1), palette=bmp_palette(b"\0\0\0\xff\xff\xff")), PALETTE_WARN)
good("bits_4.bmp", bmp(4, bmp_rows(INDEX, 4), palette=bmp_palette(COLOURS)), PALETTE_WARN)
good("bits_8.bmp", save(RGB.quantize(200), "BMP"), PALETTE_WARN)
good("grey.bmp", save(GREY, "BMP"), GREY_WARN)
good("few_colours.bmp", bmp(8, bmp_rows(INDEX, 8), palette=bmp_palette(COLOURS), colours=16), PALETTE_WARN)
good("bits_16.bmp", bmp(16, bmp_rows(pixels_of(10, 5, 0, (5, 5, 5)), 16)))
good("fields_565.bmp", bmp(16, bmp_rows(pixels_of(11, 5, 0, (5, 6, 5)), 16), compression=3,
                           masks=struct.pack("<III", 0xF800, 0x7E0, 0x1F)))
good("bits_24.bmp", save(RGB, "BMP"))
good("top_down.bmp", bmp(24, bmp_rows(flat, 24, flip=False), h=-H))
good("bits_32.bmp", bmp(32, bmp_rows(pixels_of(16, 8, 0, a=24), 32)))
good("fields_32.bmp", bmp(32, bmp_rows(pixels_of(24, 16, 8), 32), compression=3,
                          masks=struct.pack("<III", 0xFF000000, 0xFF0000, 0xFF00)))
good("alpha_v4.bmp", bmp(32, bmp_rows(pixels_of(16, 8, 0, a=24), 32), compression=3, header=108,
                         masks=struct.pack("<IIII", 0xFF0000, 0xFF00, 0xFF, 0xFF000000)))
good("alpha_v5_rgba.bmp", bmp(32, bmp_rows(pixels_of(0, 8, 16, a=24), 32), compression=3, header=124,
                              masks=struct.pack("<IIII", 0xFF, 0xFF00, 0xFF0000, 0xFF000000)))
good("rle8.bmp", bmp(8, rle8(INDEX), palette=bmp_palette(COLOURS.ljust(768, b"\7")), compression=1), PALETTE_WARN)
good("rle8_delta.bmp", bmp(8, rle8(INDEX[5:]) [:-2] + b"\0\2\3\2" + rle8(INDEX[:3, 3:]),
                           palette=bmp_palette(COLOURS.ljust(768, b"\7")), compression=1), PALETTE_WARN)
good("rle4.bmp", bmp(4, rle4(INDEX), palette=bmp_palette(COLOURS), compression=2), PALETTE_WARN)
good("os2_24.bmp", bmp(24, bmp_rows(flat, 24), header=12))
good("os2_8.bmp", bmp(8, bmp_rows(INDEX, 8), header=12, palette=b"".join(
    bytes(reversed(COLOURS.ljust(768, b"\5")[i : i + 3])) for i in range(0, 768, 3))), PALETTE_WARN)
good("offset_forgotten.bmp", bmp(8, bmp_rows(INDEX, 8), palette=bmp_palette(COLOURS.ljust(768, b"\7")), offset=54),
     PALETTE_WARN)
good("garbage_behind.bmp", save(RGB, "BMP") + b"garbage")
some = save(RGB, "BMP")
damaged("cut_half.bmp", some[: len(some) // 2], TRUNCATED, "rows are missing")
bad("cut_header.bmp", some[:40], TRUNCATED, "inside its header")
damaged("rle8_short.bmp", bmp(8, rle8(INDEX[:9]), palette=bmp_palette(COLOURS.ljust(768, b"\7")), compression=1), TRUNCATED,
        "rows are missing")
damaged("index_outside.bmp", bmp(8, bmp_rows(INDEX, 8), palette=bmp_palette(COLOURS[:24]), colours=8), UNREADABLE,
        "outside the palette")
bad("jpeg_inside.bmp", bmp(24, plain, compression=4), UNSUPPORTED, "compression 4")
bad("bits_2.bmp", bmp(2, bmp_rows(INDEX & 3, 2), palette=bmp_palette(COLOURS[:12])), UNSUPPORTED, "2 bits")
bad("odd_masks.bmp", bmp(16, bmp_rows(flat & 0xFFFF, 16), compression=3, masks=struct.pack("<III", 7, 56, 448)), UNSUPPORTED,
    "masks")
bad("header_60.bmp", bmp(24, bmp_rows(flat, 24), header=60), UNSUPPORTED, "header of 60")
bad("claims_huge.bmp", some[:18] + struct.pack("<ii", 100000, 100000) + some[26:], LARGE, "100000 x 100000")

# WebP -----------------------------------------------------------------------------------------------------------------
lossy, lossless = save(RGB, "WEBP", quality=80), save(RGB, "WEBP", lossless=True)
part = RGB.crop((0, 0, 20, 18))
good("lossy.webp", lossy)
good("lossless.webp", lossless)
good("lossy_alpha.webp", save(RGBA, "WEBP", quality=80))
good("lossless_alpha.webp", save(RGBA, "WEBP", lossless=True))
for n in (3, 6):
    good(f"exif_{n}.webp", save(RGB, "WEBP", exif=exif(n)), orientation=n)
good("exif_named.webp", riff([vp8x(8, W, H), *webp_chunks(lossy), (b"EXIF", exif(5, ident=b"Exif\0\0"))]), orientation=5)
good("exif_unannounced.webp", riff([vp8x(0, W, H), *webp_chunks(lossy), (b"EXIF", exif(5))]))
good("icc.webp", save(RGB, "WEBP", icc_profile=b"\0" * 128), PROFILE_WARN)
good("animated.webp", save(RGB, "WEBP", save_all=True, append_images=[RGB.rotate(180)], duration=50), "first of 2 frames",
     frames=2)
good("first_frame_small.webp", riff([vp8x(2, W, H), (b"ANIM", b"\xff\xff\xff\xff\0\0"),
                                     anmf(webp_chunks(save(part, "WEBP", lossless=True)), 6, 4, 20, 18),
                                     anmf(webp_chunks(save(RGB, "WEBP")), 0, 0, W, H)]), "first of 2 frames", frames=2)
good("first_frame_alpha.webp", riff([vp8x(0x12, W, H), (b"ANIM", b"\xff\xff\xff\xff\0\0"),
                                     anmf(webp_chunks(save(RGBA.crop((8, 0, 28, 18)), "WEBP", lossless=True)), 6, 4, 20, 18),
                                     anmf(webp_chunks(save(RGB, "WEBP")), 0, 0, W, H)]), "first of 2 frames", frames=2)
bad("frames_10001.webp", riff([vp8x(2, W, H), (b"ANIM", b"\xff\xff\xff\xff\0\0"), anmf(webp_chunks(lossy), 0, 0, W, H)] +
                              [anmf([], 0, 0, 1, 1)] * 10000), LARGE, "10001 frames")
good("webp_named.jpg", lossless, form="webp")
bad("cut_half.webp", lossy[: len(lossy) // 2], TRUNCATED, "its header says")
half = webp_chunks(lossy)[0][1]
damaged("cut_inside.webp", riff([(b"VP8 ", half[: len(half) // 2])]), TRUNCATED, "pixels are missing")
bad("chunk_too_long.webp", lossless[:16] + b"\xff\xff\0\0" + lossless[20:], TRUNCATED, "behind the file")
bad("no_picture.webp", riff([(b"JUNK", b"1234")]), UNREADABLE, "holds no picture")
bad("broken_header.webp", riff([(b"VP8L", b"\x2e" + webp_chunks(lossless)[0][1][1:])]), UNREADABLE, "damaged header")

# Not read -------------------------------------------------------------------------------------------------------------


def raw(make, small=True, dng=False, big=False):
    """The first directory of a camera's raw file: a TIFF that begins with a small picture."""
    e = ">" if big else "<"
    entries = [(0xFE, 4, 1, struct.pack(e + "I", small)), (0x10F, 2, len(make), None)]
    entries += [(0xC612, 1, 4, b"\1\4\0\0")] if dng else []
    at = 8 + 2 + 12 * len(entries) + 4
    entries = [(t, k, n, v or (make.ljust(4, b"\0") if n <= 4 else struct.pack(e + "I", at))) for t, k, n, v in entries]
    return ((b"MM" if big else b"II") + struct.pack(e + "HIH", 42, 8, len(entries)) +
            b"".join(struct.pack(e + "HHI", t, k, n) + v for t, k, n, v in entries) + struct.pack(e + "I", 0) + make)


for name, data, words in (
    ("photo.heic", b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "HEIC"),
    ("photo.avif", b"\0\0\0\x18ftypavif\0\0\0\0mif1avif", "AVIF"),
    ("photo.heif", b"\0\0\0\x18ftypmif1\0\0\0\0mif1heic", "HEIF"),
    ("scan.tif", save(GREY.crop((0, 0, 4, 4)), "TIFF"), "TIFF"),
    ("big_endian.tif", b"MM\0*\0\0\0\x08\0\0\0\0\0\0", "TIFF"),
    ("photo.cr2", b"II*\0\x10\0\0\0CR\2\0\0\0\0\0", "CR2"),
    ("photo.dng", raw(b"Canon\0", dng=True), "DNG"),
    ("photo.nef", raw(b"NIKON CORPORATION\0"), "NEF"),
    ("photo.arw", raw(b"SONY\0"), "ARW"),
    ("photo.pef", raw(b"PENTAX\0", big=True), "TIFF (or a camera raw file)"),
    ("edited.tif", raw(b"SONY\0", small=False), "TIFF (or a camera raw file)"),
    ("photo.cr3", b"\0\0\0\x18ftypcrx \0\0\0\1crx isom", "CR3"),
    ("photo.raf", b"FUJIFILMCCD-RAW 0201", "RAF"),
    ("photo.orf", b"IIRO\x08\0\0\0", "ORF"),
    ("photo.rw2", b"IIU\0\x18\0\0\0", "RW2"),
    ("drawing.svg", b'<?xml version="1.0"?>\n<svg xmlns="http://www.w3.org/2000/svg"/>', "SVG"),
    ("paper.pdf", b"%PDF-1.7\n", "PDF"),
    ("layers.psd", b"8BPS\0\1" + b"\0" * 20, "Photoshop"),
    ("photo.jxl", b"\xff\x0a\0\0", "JPEG XL"),
    ("photo.jp2", b"\0\0\0\x0cjP  \r\n\x87\n", "JPEG 2000"),
    ("favicon.ico", b"\0\0\1\0\1\0" + b"\0" * 16, "ICO"),
    ("clip.mp4", b"\0\0\0\x18ftypisom\0\0\0\0", "video"),
    ("photo.ppm", b"P6\n1 1\n255\n\0\0\0", "PNM"),
    ("page.jpg", b"<!DOCTYPE html><html><body>404</body></html>", "HTML"),
):
    bad(name, data, UNSUPPORTED, words)
bad("empty.jpg", b"", UNREADABLE, "empty")
bad("text.jpg", b"this is no picture", UNREADABLE, "no picture format")
bad("zeros.png", b"\0" * 64, UNREADABLE, "no picture format")
