/* What the files of job share: memory of a job, and the checked reading of JSON objects into it.
 *
 * An object is read by tables of fields: every member must be in one of them, so that a misspelt
 * or unsupported field is an error and never silently without effect. */
#ifndef NS_JOB_BUILD_H
#define NS_JOB_BUILD_H

#include "jobs/job.h"
#include "jobs/jdoc.h"

#define JOB_MAX_IMAGES 1024
#define JOB_MAX_STOPS  64
#define JOB_MAX_VALUES (JDOC_MAX_VALUES / 2) /* of a line, so that its spec stays readable */
#define JOB_PATH_CHARS 200

struct job_builder {
    struct job *job;
    const struct jdoc *doc;
    const struct job_opts *opts;
    struct err *e;
    size_t messages_cap, images_cap;
    bool has_markers;            /* "<image>" in a text stands for the next of `images` */
    uint32_t marked;             /* next of them, a value; 0: none left */
    size_t n_marked;             /* all of them */
    size_t n_markers;            /* "<image>" seen */
    char images[JOB_PATH_CHARS]; /* their field, for messages */
};

/* Memory that lives as long as the job; zeroed. */
enum status job_alloc(struct job *j, void *out_ptr, size_t bytes, struct err *e);
/* Room for one more of `size` bytes in an array of n, *cap: moves and doubles it. */
struct job_array {
    void **at;
    size_t n, *cap, size;
};
enum status job_grow(struct job *j, const struct job_array *a, struct err *e);
enum status job_copy(struct job *j, const char **out, const char *text, size_t len, struct err *e);

/* What is accepted of a field. null always is, as if the field were absent. */
enum job_rule {
    JOB_TAKE,   /* its value goes to values[] */
    JOB_IGNORE, /* any value: it does not change the output */
    /* A feature that is not there: only the value that asks for nothing. */
    JOB_FALSE,
    JOB_TRUE,
    JOB_ZERO,
    JOB_ONE,
    JOB_EMPTY, /* [], {} or "" */
    JOB_OFF,   /* "none" or "auto" */
    JOB_NEVER,
};

struct job_field {
    const char *name;
    enum job_rule rule;
};

struct job_field_set {
    const struct job_field *fields;
    size_t n;
    uint32_t *values; /* [n], zeroed; of JOB_TAKE fields; NULL without any */
};

/* Read `object` by the tables; where: its path in messages, "" for the line itself. Anything that
 * is no object: E_INVALID_REQUEST. Other members: E_UNSUPPORTED_FIELD. */
enum status job_fields(struct job_builder *b, uint32_t object, const char *where,
                       const struct job_field_set *sets, size_t n_sets);

/* "where.name", or "name" when where is "". */
void job_path(char out[JOB_PATH_CHARS], const char *where, const char *name);
/* "where: expected ..., found ..."; job_bad is E_INVALID_REQUEST. */
enum status job_refuse(const struct job_builder *b, enum status code, const char *where,
                       const char *expected, uint32_t found);
enum status job_bad(const struct job_builder *b, const char *where, const char *expected,
                    uint32_t found);
/* A string's characters, copied; len may be NULL. E_INVALID_REQUEST when v is none. */
enum status job_string(struct job_builder *b, uint32_t v, const char *where, const char **out,
                       size_t *len);

/* The settings that every form takes, and those that a batch line may also carry outside its body.
 */
enum {
    SET_MODEL,
    SET_MAX_TOKENS,
    SET_MAX_COMPLETION_TOKENS,
    SET_TEMPERATURE,
    SET_TOP_P,
    SET_TOP_K,
    SET_SEED,
    SET_STOP,
    SET_STOP_SEQUENCES,
    SET_FORMAT,
    SET_EFFORT,
    SET_THINKING,
    SET_TEMPLATE,
    SET_COUNT
};
enum { LINE_METADATA, LINE_PRIORITY, LINE_TIMEOUT, LINE_COUNT };
extern const struct job_field job_setting_fields[SET_COUNT];
extern const struct job_field job_line_fields[LINE_COUNT];
/* Fields of OpenAI, Anthropic and vLLM requests that are ignored or refused. */
extern const struct job_field job_other_fields[];
extern const size_t job_n_other_fields;

enum status job_read_settings(struct job_builder *b, const char *where, const uint32_t *values);
enum status job_read_line_settings(struct job_builder *b, const char *where,
                                   const uint32_t *values);

/* Messages. A new one at the end, without parts. */
enum status job_add_message(struct job_builder *b, enum chat_role role, struct chat_message **out);
/* The parts of a message from a string or an array of parts. */
enum status job_add_content(struct job_builder *b, uint32_t content, const char *where,
                            struct chat_message *m);
/* A user message of images (values: a string or an array of strings; or one path; or none), then
 * text. */
struct job_shown {
    uint32_t images;
    const char *ref;
    const char *where;
    const char *text;
};
enum status job_add_shown(struct job_builder *b, const struct job_shown *s);
enum status job_add_messages(struct job_builder *b, uint32_t array, const char *where);

#endif
