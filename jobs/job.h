/* One job: a line of input, checked, in one shape whatever form it came in.
 *
 * job_parse reads a line in any of the forms of the input contract (OpenAI batch, Anthropic batch,
 * messages + images, short); job_from_file makes the job of one picture. Nothing is opened or
 * resolved here: paths stay as written, an inline image stays a byte range of its line, verified
 * and hashed but not kept. job_spec writes a job as canonical JSON text, which is all that a
 * database must hold to get the same job back (job_from_spec) without the source file; the bytes of
 * inline images are the only thing still read from there. Equal specs mean equal jobs. */
#ifndef NS_JOB_H
#define NS_JOB_H

#include "src/chat.h"
#include "src/mem.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define JOB_ID_MAX    512 /* bytes of a custom_id */
#define JOB_SHA_CHARS 65  /* lower-case hex and NUL */

enum job_form { JOB_OPENAI, JOB_ANTHROPIC, JOB_MESSAGES, JOB_SHORT, JOB_FILE, JOB_FORMS };

/* "openai", "anthropic", "messages", "short", "file" */
const char *job_form_name(enum job_form form);

/* Which settings were given; the others are for defaults to fill. */
enum job_has {
    JOB_HAS_MAX_TOKENS = 1 << 0,
    JOB_HAS_TEMPERATURE = 1 << 1,
    JOB_HAS_TOP_P = 1 << 2,
    JOB_HAS_TOP_K = 1 << 3,
    JOB_HAS_SEED = 1 << 4,
    JOB_HAS_STOP = 1 << 5,
    JOB_HAS_EFFORT = 1 << 6,
    JOB_HAS_PRIORITY = 1 << 7,
    JOB_HAS_TIMEOUT = 1 << 8,
};

struct job_settings {
    unsigned has;        /* enum job_has */
    uint64_t max_tokens; /* 1 .. 2^31 - 1 */
    double temperature;  /* 0 .. 2; 0 is greedy */
    double top_p;        /* over 0, at most 1 */
    uint32_t top_k;      /* 0: off */
    uint64_t seed;
    const char *const *stops; /* non-empty strings */
    size_t n_stops;
    const char *effort; /* "low", "high", "max"; NULL: thinking off */
    int64_t priority;   /* higher runs first */
    double timeout_s;   /* over 0 */
};

/* max_tokens 1024, greedy, top_p 1, top_k 0, seed 0, no stops, thinking off, priority 0, no timeout
 * (timeout_s 0); every bit of `has` set. */
extern const struct job_settings job_default_settings;

/* Take from `from` what `s` has not. Pointers are borrowed from `from`. */
void job_settings_fill(struct job_settings *s, const struct job_settings *from);

struct job_image {
    const char *ref; /* path or file:// URL as written; NULL: inline */
    /* An inline image: its base64 text in the source line, bytes [at, at + len) counted from the
     * line's first byte, still with JSON's escapes (a slash may be written \/). */
    uint64_t at, len;
    const char *mime;           /* as the data: URL or media_type claims; "" when it does not */
    uint64_t bytes;             /* decoded size */
    char sha256[JOB_SHA_CHARS]; /* of the decoded bytes; "" for a path */
    struct chat_part *part;     /* where the messages show it */
};

struct job {
    const char *custom_id; /* NULL only when parsing failed before it was legible */
    enum job_form form;
    const char *model; /* as asked for, or NULL */
    /* In order. The i-th image part of all messages is images[i]; its size is 0 x 0 until
     * job_set_image_size. */
    struct chat_message *messages;
    size_t n_messages;
    struct job_image *images;
    size_t n_images;
    struct job_settings settings;
    enum chat_format format;
    const char *schema;      /* CHAT_JSON_SCHEMA: canonical JSON text; else NULL */
    const char *metadata;    /* JSON text exactly as written, or NULL */
    struct job_arena *arena; /* owns all of the above */
};

struct job_opts {
    const char *prompt; /* for short lines without one, and for files; or NULL */
    const char *system; /* for jobs without a system message; or NULL */
};

/* line: one line without its end, `len` bytes. After an error `out` still holds custom_id if one
 * was legible; either way end with job_free. Errors are the job's: E_INVALID_JSON,
 * E_INVALID_REQUEST, E_UNSUPPORTED_FIELD; or E_NOMEM. Messages name field, expected, found. o may
 * be NULL. */
enum status job_parse(struct job *out, const char *line, size_t len, const struct job_opts *o,
                      struct err *e);
/* The job of one picture: o->prompt about it (E_USAGE when there is none), its path as id. */
enum status job_from_file(struct job *out, const char *path, const struct job_opts *o,
                          struct err *e);
void job_free(struct job *j);

/* Append the canonical spec: one line of JSON, settings only as far as given. */
enum status job_spec(const struct job *j, struct buf *out, struct err *e);
/* E_DB on anything that job_spec does not write. job_spec of the result gives the same bytes. */
enum status job_from_spec(struct job *out, const char *spec, size_t len, struct err *e);

/* The size that the prompt states for images[i]. */
void job_set_image_size(struct job *j, size_t i, unsigned width, unsigned height);

/* What a shard is chosen by: a hash of the first image, so that questions on one image stay
 * together, else of the id. The same on every machine, wherever the line stands. */
uint64_t job_shard_hash(const struct job *j);
/* Whether j belongs to shard k of n, 1 <= k <= n; n 0: there is only one. A job without an id is
 * the first shard's. */
bool job_in_shard(const struct job *j, uint32_t k, uint32_t n);

#endif
