/* The command line: one table of options, help made from it, dispatch, exit codes.
 *
 * A command is a function from struct cmd_options to an exit code; it is added by one line of
 * CMD_LIST and appears in the help from then on. Only jobs/cmd* print. Results and help go to
 * standard output, everything else to standard error. */
#ifndef NS_CMD_H
#define NS_CMD_H

#include "jobs/image_ref.h"
#include "jobs/job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NIGHTSHIFT_VERSION "0.1.0"

enum exit_code {
    EXIT_DONE = 0,
    EXIT_SOME_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_REJECTED = 3, /* --strict: bad input, nothing run */
    EXIT_UNUSABLE = 4, /* model or database cannot be used, no memory */
    EXIT_STORAGE = 5,  /* disk full, I/O error */
    EXIT_HELD = 6,     /* another run holds the queue */
    EXIT_LIMIT = 7,    /* stopped by a limit, work left */
    EXIT_SIGINT = 130,
    EXIT_SIGTERM = 143,
};

/* bit, name, operands, summary; in the order of the help. A command that does not exist yet is not
 * listed. Operands: "" takes none, "[X]" may be left out, "X" may not, "..." allows several.
 */
#define CMD_LIST(X)                                                                                \
    X(CMD_RUN, run, "[JOBS.jsonl|FILE|DIR...]",                                                    \
      "run jobs, resumably: import, work, export; run it again to go on")                          \
    X(CMD_ADD, add, "JOBS.jsonl|FILE|DIR...", "put jobs into a queue; twice is once")              \
    X(CMD_CHECK, check, "JOBS.jsonl|FILE|DIR...",                                                  \
      "say what run would reject; count jobs, images, tokens")                                     \
    X(CMD_WORK, work, "", "work a queue; several may share one")                                   \
    X(CMD_STATUS, status, "", "where a queue stands: counts, rates, time left")                    \
    X(CMD_LIST_JOBS, list, "", "the jobs, one a line")                                             \
    X(CMD_SHOW, show, "ID", "everything about one job")                                            \
    X(CMD_ERRORS, errors, "", "the jobs that failed, and why")                                     \
    X(CMD_RETRY, retry, "[ID...]", "failed or cancelled jobs run again")                           \
    X(CMD_CANCEL, cancel, "[ID...]", "jobs that are not done yet never run")                       \
    X(CMD_EXPORT, export, "", "results as a file, at any time, also while running")                \
    X(CMD_MERGE, merge, "QUEUE.db...", "results of shards as one file; says what is missing")      \
    X(CMD_VERIFY, verify, "[OUT.jsonl...]", "is a queue whole, and do exports match?")             \
    X(CMD_BACKUP, backup, "",                                                                      \
      "a copy of a queue that can be gone on with, also while it is worked")                       \
    X(CMD_PLAN, plan, "[JOBS.jsonl|FILE|DIR...]",                                                  \
      "how memory would be shared out for these jobs, or for such as many have")                   \
    X(CMD_INFO, info, "", "what a model is, and whether its files are whole")                      \
    X(CMD_BENCH, bench, "", "measured figures of this machine, beside its limits")                 \
    X(CMD_REPACK, repack, "", "write a model anew, its experts laid out for reading")

/* One bit per command, listed or not, for the options' "which commands take it". */
enum cmd_bit {
    CMD_RUN = 1 << 0,
    CMD_ADD = 1 << 1,
    CMD_CHECK = 1 << 2,
    CMD_WORK = 1 << 3,
    CMD_STATUS = 1 << 4,
    CMD_LIST_JOBS = 1 << 5,
    CMD_SHOW = 1 << 6,
    CMD_ERRORS = 1 << 7,
    CMD_RETRY = 1 << 8,
    CMD_CANCEL = 1 << 9,
    CMD_EXPORT = 1 << 10,
    CMD_MERGE = 1 << 11,
    CMD_VERIFY = 1 << 12,
    CMD_PLAN = 1 << 13,
    CMD_INFO = 1 << 14,
    CMD_BENCH = 1 << 15,
    CMD_REPACK = 1 << 16,
    CMD_BACKUP = 1 << 17,
    CMD_ALL = (1 << 18) - 1,
};

/* What the choices of the table give; 0 is always the default. */
enum cmd_progress { PROGRESS_AUTO, PROGRESS_TTY, PROGRESS_PLAIN, PROGRESS_JSON, PROGRESS_NONE };
enum cmd_order { ORDER_AUTO, ORDER_INPUT };
enum cmd_on_duplicate { DUPLICATE_ERROR, DUPLICATE_SKIP };
enum cmd_on_changed { CHANGED_ERROR, CHANGED_RERUN, CHANGED_KEEP };
enum cmd_verify_images { VERIFY_CONTENT, VERIFY_STAT };
enum cmd_on_existing {
    EXISTING_ERROR,
    EXISTING_SKIP,
    EXISTING_OVERWRITE,
    EXISTING_APPEND,
    EXISTING_PREPEND
};
enum cmd_format { FORMAT_OPENAI, FORMAT_METADATA, FORMAT_CSV, FORMAT_TXT, FORMAT_SHAREGPT };
enum cmd_activations { ACTIVATIONS_F32, ACTIVATIONS_BF16 };

struct cmd_list {
    const char **at;
    size_t n;
};

/* Every option, as parsed. Strings borrow from argv; NULL or 0 or false: not given, unless said
 * otherwise. */
struct cmd_options {
    const char *command;
    struct cmd_list operands; /* -i and plain operands, in the order given */

    const char *model, *output, *errors_file, *db;
    const char *prompt, *system;
    struct job_settings job; /* defaults from the command line; `has` says which were given */

    uint32_t shard, shards; /* --shard k/N, k from 1; 0: not given */
    uint64_t retries;       /* default 3 */
    bool retry_failed, fresh, dry_run, strict, allow_model_change;
    uint64_t max_jobs;
    int64_t deadline;    /* --deadline as seconds since 1970 */
    uint64_t halt_fails; /* --halt fail=N: stop when so many jobs failed */
    double halt_percent; /* --halt fail=P% */

    enum cmd_progress progress;
    bool eta, quiet, json;
    double watch_s; /* status --watch[=SECONDS] */
    enum cmd_order order;
    enum cmd_on_duplicate on_duplicate;
    enum cmd_on_changed on_changed_input;
    enum cmd_on_existing on_existing;
    enum cmd_format format;
    const char *state, *code; /* list, retry, cancel: only jobs in this state, with this error */
    bool all;                 /* retry, cancel: every job that fits */
    uint64_t limit;           /* list, errors */

    struct image_ref_opts images; /* --image-root, --map-path, --max-image-bytes */
    uint64_t max_line_bytes;
    uint64_t max_pixels;
    uint32_t max_patches;
    bool lenient_images, no_exif;
    double image_timeout_s;
    enum cmd_verify_images verify_images;

    uint64_t ram_bytes;
    uint32_t threads;
    const char *isa;
    enum cmd_activations activations;
    uint64_t max_sequences, prefill_rows;
    uint64_t cache_experts;       /* --cache-experts N */
    double cache_experts_percent; /* --cache-experts P% */
    bool no_direct_io;

    struct cmd_list only;  /* bench: sections */
    const char *cache_sim; /* bench: a file of recorded routes */
    double seconds;        /* bench: for each figure, about */
    uint64_t context;
    bool no_drafts;        /* --draft off */
    uint64_t draft_tokens; /* --draft N; 0: adapt */
    uint64_t shard_bytes;  /* repack */

    struct cmd_list stops;      /* what job.stops points to */
    struct image_ref_map *maps; /* what images.maps points to; each `from` is owned */
};

/* What main does. */
int cmd_main(int argc, char **argv);

/* Fill o from the words after the command's name; E_USAGE with the one line to print. *help: it was
 * asked for, and nothing else matters. End with cmd_options_free either way. */
struct cmd_words {
    enum cmd_bit command;
    const char *name, *operands; /* of CMD_LIST */
    int n;
    char **at;
};
enum status cmd_parse(struct cmd_options *o, const struct cmd_words *words, bool *help,
                      struct err *e);
void cmd_options_free(struct cmd_options *o);

/* One line "nightshift: ..." on standard error; the exit code that belongs to the error. */
int cmd_fail(const struct err *e);
enum exit_code cmd_exit_code(enum status code);
/* The exit code of a command that ended with rc, or else with `code`; tells an error. One that a
 * signal stopped has the signal's. */
int cmd_end(enum status rc, const struct err *e, int code);
/* The same for a mistake in the command line: exit code 2. */
int cmd_usage(const char *fmt, ...) PRINTF_LIKE(1, 2);

/* SIGINT, SIGTERM, SIGUSR1: the first one is from now on only noted, the second ends the process at
 * once. */
void cmd_catch_signals(void);
/* 0: none came yet, 1: stop soon and keep all. */
int cmd_stop_wanted(void);
/* The exit code of that stop: 130 for SIGINT, 143 for the others; 0 when none came. */
int cmd_stop_exit(void);

/* The commands. */
#define X(bit, name, operands, summary) int cmd_##name(const struct cmd_options *o);
CMD_LIST(X)
#undef X

#endif
