/* Picture files as the world has them: tests/golden/pictures holds the table of files, what must
 * come of each, and the pixels that the vendor's processor makes of them with Pillow
 * (tests/ref/pictures.py). Pixels agree to the byte. */
#include "src/os.h"
#include "src/safetensors.h"
#include "tests/lib/test.h"
#include "vision/sandbox.h"

#define DIR     "tests/golden/pictures"
#define COLUMNS 11

enum column {
    NAME,
    CODE,
    WORDS,
    FORMAT,
    WIDTH,
    HEIGHT,
    TURN,
    FRAMES,
    WARNINGS,
    LENIENT,
    LENIENT_WORDS
};

struct row {
    char *cell[COLUMNS];
};

static char *text; /* of the table; cells point into it */
static struct row rows[400];
static size_t n_rows;
static struct safetensors *tensors;

static bool read_table(void)
{
    struct err e;
    if (tensors) return true;
    text = test_read(DIR "/table.tsv", NULL);
    if (!text || safetensors_open(&tensors, DIR, false, &e)) return false;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        struct row *r = &rows[n_rows++];
        for (int i = 0; i < COLUMNS; i++) {
            char *cell = strsep(&line, "\t");
            if (!cell) return false;
            r->cell[i] = cell;
        }
    }
    return n_rows > 0;
}

/* malloc'ed */
static uint8_t *tensor(const struct row *r, const char *what, const struct tensor_info **t)
{
    char name[128];
    struct err e;
    snprintf(name, sizeof name, "%s.%s", r->cell[NAME], what);
    *t = safetensors_find(tensors, name);
    uint8_t *p = *t ? malloc((*t)->bytes + 1) : NULL;
    if (p && (*t)->bytes && safetensors_read(tensors, *t, p, &e)) abort();
    return p;
}

/* What came of a file. */
struct outcome {
    enum status probed, decoded; /* decoded: E_USAGE when not tried */
    struct err e;
    struct picture_info info;
    uint8_t *rgb; /* malloc'ed */
};

static struct sandbox *box; /* NULL: in this process */

static void look(const struct row *r, unsigned patches, bool lenient, struct outcome *o)
{
    struct vision_processor processor;
    struct vision_limits limits;
    const struct tensor_info *t;
    uint8_t *file = tensor(r, "file", &t);
    *o = (struct outcome){.decoded = E_USAGE};
    vision_processor_load(&processor, NULL, NULL);
    vision_limits_default(&limits);
    limits.lenient = lenient;
    limits.max_patches = patches;
    struct picture_job job = {&processor, &limits, file, t->bytes};
    o->probed = picture_probe(&job, &o->info, &o->e);
    if (!o->probed) {
        o->rgb = malloc((size_t)o->info.resized_w * o->info.resized_h * 3);
        o->decoded = box ? sandbox_decode(box, &job, &o->info, o->rgb, &o->e)
                         : picture_decode(&job, &o->info, o->rgb, &o->e);
    }
    free(file);
}

static enum status code_of(const struct outcome *o)
{
    return o->probed ? o->probed : o->decoded;
}

static void joined_warnings(const struct picture_info *info, char *out, size_t room)
{
    size_t n = 0;
    *out = 0;
    for (unsigned i = 0; i < info->n_warnings; i++)
        n += (size_t)snprintf(out + n, room - n, "%s%s", i ? "; " : "", info->warnings[i]);
}

#define SAY(...)                                                                                   \
    do {                                                                                           \
        test_failed(__FILE__, __LINE__, __VA_ARGS__);                                              \
        return;                                                                                    \
    } while (0)

static void check_pixels(const struct row *r, const char *size, const struct outcome *o)
{
    const struct tensor_info *t;
    uint8_t *want = tensor(r, size, &t);
    if (!want) SAY("%s: no %s pixels in the fixture", r->cell[NAME], size);
    if (t->shape[1] != o->info.resized_w || t->shape[0] != o->info.resized_h) {
        free(want);
        SAY("%s %s: %u x %u, not %u x %u", r->cell[NAME], size, o->info.resized_w,
            o->info.resized_h, (unsigned)t->shape[1], (unsigned)t->shape[0]);
    }
    size_t differ = 0;
    int most = 0;
    for (size_t i = 0; i < t->bytes; i++) {
        int d = abs(want[i] - o->rgb[i]);
        differ += d != 0;
        if (d > most) most = d;
    }
    free(want);
    if (differ)
        SAY("%s %s: %zu of %u bytes differ, by up to %d", r->cell[NAME], size, differ,
            (unsigned)t->bytes, most);
}

static void check_good(const struct row *r)
{
    static const char *const sizes[] = {"full", "small"};
    for (int small = 0; small < 2; small++) {
        struct outcome o;
        char warnings[PICTURE_WARNINGS * 82];
        look(r, small ? 2 : 0, false, &o);
        if (code_of(&o)) {
            free(o.rgb);
            SAY("%s: %s: %s", r->cell[NAME], status_name(code_of(&o)), o.e.text);
        }
        joined_warnings(&o.info, warnings, sizeof warnings);
        char have[512], want[512];
        snprintf(have, sizeof have, "%s %u x %u, orientation %u, %u frames, warns \"%s\"",
                 o.info.format, o.info.width, o.info.height, o.info.orientation, o.info.frames,
                 warnings);
        snprintf(want, sizeof want, "%s %s x %s, orientation %s, %s frames, warns \"%s\"",
                 r->cell[FORMAT], r->cell[WIDTH], r->cell[HEIGHT], r->cell[TURN], r->cell[FRAMES],
                 r->cell[WARNINGS]);
        if (strcmp(have, want))
            test_failed(__FILE__, __LINE__, "%s: %s; expected %s", r->cell[NAME], have, want);
        check_pixels(r, sizes[small], &o);
        free(o.rgb);
    }
}

static void check_bad(const struct row *r)
{
    struct outcome o;
    look(r, 0, false, &o);
    enum status code = code_of(&o);
    free(o.rgb);
    if (strcmp(status_name(code), r->cell[CODE]))
        SAY("%s: %s (%s), not %s", r->cell[NAME], status_name(code), o.e.text, r->cell[CODE]);
    if (!strstr(o.e.text, r->cell[WORDS]))
        SAY("%s: \"%s\" without \"%s\"", r->cell[NAME], o.e.text, r->cell[WORDS]);
}

/* Every readable file: format, size, orientation, frames and warnings as listed; pixels as the
 * vendor's processor has them, at their own size and scaled down. */
TEST(readable_files)
{
    CHECK(read_table());
    size_t n = 0;
    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(rows[i].cell[CODE], "ok")) continue;
        check_good(&rows[i]);
        n++;
    }
    CHECK(n >= 80);
}

/* Every other file: the listed code, and a message that says why. */
TEST(refused_files)
{
    CHECK(read_table());
    size_t n = 0;
    for (size_t i = 0; i < n_rows; i++) {
        if (!strcmp(rows[i].cell[CODE], "ok")) continue;
        check_bad(&rows[i]);
        n++;
    }
    CHECK(n >= 40);
}

/* Lenient: damage that leaves something to see is shown with a warning, the rest is refused as
 * before; sound files are as without it. */
TEST(lenient_files)
{
    CHECK(read_table());
    for (size_t i = 0; i < n_rows; i++) {
        const struct row *r = &rows[i];
        struct outcome o;
        char warnings[PICTURE_WARNINGS * 82];
        look(r, 0, true, &o);
        joined_warnings(&o.info, warnings, sizeof warnings);
        enum status code = code_of(&o);
        bool good = !code;
        free(o.rgb);
        if (strcmp(status_name(code), r->cell[LENIENT]))
            test_failed(__FILE__, __LINE__, "%s: %s (%s), not %s", r->cell[NAME], status_name(code),
                        good ? warnings : o.e.text, r->cell[LENIENT]);
        else if (good && !strstr(warnings, r->cell[LENIENT_WORDS]))
            test_failed(__FILE__, __LINE__, "%s: warns \"%s\", without \"%s\"", r->cell[NAME],
                        warnings, r->cell[LENIENT_WORDS]);
    }
}

/* In a process of its own, every file comes to the same. */
TEST(sandboxed_files)
{
    struct err e;
    CHECK(read_table());
    CHECK_OK(sandbox_open(&box, picture_decode, &e), e);
    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(rows[i].cell[CODE], "ok"))
            check_bad(&rows[i]);
        else
            check_good(&rows[i]);
    }
    sandbox_close(box);
    box = NULL;
}

TEST_MAIN
