/* All inputs of a command as one stream of jobs: JSONL files, picture files and folders.
 *
 * A name that ends in .jsonl, .ndjson or .json, or a file that begins with "{", holds lines; any
 * other file is a picture; a folder gives the pictures in it and below, in the order of their
 * names, hidden ones left out; links to folders below it are not followed. One line is in memory at
 * a time. */
#ifndef NS_INPUT_H
#define NS_INPUT_H

#include "jobs/job.h"

#define INPUT_MAX_LINE_BYTES (64ull << 20)

enum input_kind { INPUT_LINES, INPUT_PICTURE, INPUT_FOLDER };

/* One name on the command line. */
struct input_source {
    const char *path; /* as given */
    enum input_kind kind;
    uint64_t size;              /* INPUT_LINES: bytes */
    uint64_t items, bad;        /* jobs so far, and those of them that are errors */
    uint64_t skipped;           /* INPUT_FOLDER: files that are no pictures by their names */
    char sha256[JOB_SHA_CHARS]; /* INPUT_LINES, with opts.hash: set once all of it was read */
    bool done;
};

struct input_opts {
    const char *const *paths;
    size_t n_paths;
    struct job_opts job;
    uint64_t max_line_bytes; /* 0: INPUT_MAX_LINE_BYTES */
    bool hash;
};

/* One job or one bad line. Pointers live until the next input_next. */
struct input_item {
    size_t source;        /* number of its input_source */
    const char *path;     /* the JSONL file or the picture */
    uint64_t line;        /* 1-based; 0 for a picture */
    uint64_t offset, len; /* bytes of the line in the file */
    enum status
        status; /* OK: job is whole; else err says why not, and job->custom_id may be NULL */
    struct err err;
    struct job *job;
};

struct input;

/* E_USAGE when a path is missing, is neither file nor folder, or needs --prompt; E_IO. */
enum status input_open(struct input **out, const struct input_opts *o, struct err *e);
/* *item = NULL at the end. An error here is the machine's; a bad line is an item. */
enum status input_next(struct input *in, const struct input_item **item, struct err *e);
void input_close(struct input *in);

size_t input_sources(const struct input *in);
const struct input_source *input_source(const struct input *in, size_t i);

/* The hash of a whole file, to see whether it is the one imported before. */
enum status input_sha256(const char *path, char sha256[JOB_SHA_CHARS], struct err *e);

#endif
