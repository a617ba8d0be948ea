/* The face of vision/: image bytes in, embedding rows out. Knows nothing of the language model. */
#ifndef NS_VISION_H
#define NS_VISION_H

#include "src/mem.h"
#include "src/quant.h"

struct vision;

/* What of a picture is accepted and how large it may become. */
struct vision_limits {
    uint64_t max_pixels;  /* of the file, checked in its header before memory is touched; default
                             200,000,000 */
    uint64_t max_bytes;   /* file size; default 256 MiB */
    uint32_t max_ratio;   /* of the longer side to the shorter; default 10,000 */
    uint32_t max_frames;  /* of an animation, though only the first is seen; default 10,000 */
    uint32_t max_patches; /* 14 x 14 patches after resizing; 0: the model's own in_patch_limit */
    uint32_t timeout_s;   /* decoding of one picture in a sandbox; default 60 */
    bool exif;            /* apply EXIF orientation (default true) */
    bool lenient;         /* accept what a strict decoder could still show, with a warning */
};
void vision_limits_default(struct vision_limits *l);

#define PICTURE_WARNINGS 4

/* What is known about a picture. */
struct picture_info {
    const char *format;     /* "jpeg", "png", "gif", "bmp", "webp" */
    unsigned width, height; /* as a person sees it: after orientation. The prompt states these. */
    unsigned orientation;   /* EXIF 1..8; 1 when absent */
    unsigned frames;        /* 1 for a still picture */
    unsigned resized_w, resized_h;
    unsigned grid_w, grid_h; /* patches, both even */
    unsigned rows;           /* embedding rows: grid_w * grid_h / merge^2 */
    uint64_t decode_bytes;   /* memory that decoding and resizing it takes at most */
    char warnings[PICTURE_WARNINGS][80];
    unsigned n_warnings;
};

/* How pictures become patches: preprocessor_config.json (kimi-k3 6.1). */
struct vision_processor {
    unsigned patch, merge, in_patch_limit, side_limit;
    float mean[3], std[3];
    unsigned checker, white, gray; /* transparency background: squares of this side; checker 0:
                                      plain `white` */
    bool gray_first;               /* the square at the top left is gray */
    bool fill_first;               /* composite before resizing, in RGB, instead of after */
};
/* dir NULL: K3's published values. */
enum status vision_processor_load(struct vision_processor *p, const char *dir, struct err *e);

/* Header only: format, size, orientation, rows; no pixels are decoded. Errors as for vision_encode,
 * as far as a header shows them. */
enum status vision_probe(const struct vision_processor *p, const struct vision_limits *l,
                         const void *bytes, size_t len, struct picture_info *out, struct err *e);

/* A place to decode pictures where they can do no harm (vision/sandbox.h). Open it before any
 * thread is started and close it last. */
struct sandbox;
enum status vision_sandbox_open(struct sandbox **out, struct err *e);
void vision_sandbox_close(struct sandbox *s);

struct vision_opts {
    struct mem *mem;
    struct compute compute;
    struct vision_limits limits;
    struct sandbox *sandbox; /* NULL: pictures are decoded in this process */
};

/* Seconds that a tower's pictures took so far, the one under way included. */
struct vision_times {
    double decode_s; /* to be decoded, turned and resized */
    double encode_s; /* in tower and projector */
};

/* Loads tower and projector of the model in dir. E_MODEL when it has none (vision_present tells
 * before). The width of a row is vision_width. */
enum status vision_open(struct vision **out, const char *dir, const struct vision_opts *o,
                        struct err *e);
void vision_close(struct vision *v);
bool vision_present(const char *dir);
unsigned vision_width(const struct vision *v);
const struct vision_processor *vision_processor(const struct vision *v);
/* Bytes that loading takes, and bytes that one picture of this many patches takes at most while it
 * is encoded, its rows included; for pools of up to 64 threads or one a core. Before that and given
 * back by then, decoding takes picture_info.decode_bytes. */
enum status vision_bytes(const char *dir, uint64_t patches, uint64_t *weights, uint64_t *scratch,
                         struct err *e);
/* Operations that encoding one takes. */
enum status vision_flop(const char *dir, double patches, double *flop, struct err *e);

/* Decode, orient, resize, encode, project. *rows: [info->rows][vision_width] from the budget;
 * mem_free it. Errors are the job's (image_unreadable, image_truncated, image_unsupported,
 * image_too_large), the machine's, or E_BUDGET: no room for this picture now. The result depends on
 * the bytes alone. One caller at a time. */
enum status vision_encode(struct vision *v, const void *bytes, size_t len,
                          struct picture_info *info, float **rows, struct err *e);

/* From any thread. */
void vision_times(struct vision *v, struct vision_times *out);

#endif
