/* A night without a model: a queue, the demo model's tokenizer and configuration, the fake engine.
 * The output file of such a night can be compared with another's. */
#ifndef NS_NIGHT_H
#define NS_NIGHT_H

#include "jobs/import.h"
#include "jobs/pipeline.h"
#include "tests/lib/fake_engine.h"

#define NIGHT_MODEL "examples/demo-model"

struct night {
    struct mem mem;
    struct db *db;
    struct config config;
    struct tok *tok;
    unsigned encoded; /* pictures */
    struct fake_engine_opts engine;
    struct pipeline_opts o; /* to be changed before night_run */
    struct pipeline_report report;
    struct import_counts counts;
};

/* All but the queue: n->db and n->o.db are the caller's to set. False when the case has failed. */
bool night_begin(struct night *n);
/* The same with test_path(db_name) as the queue. */
bool night_open(struct night *n, const char *db_name);
void night_close(struct night *n);
/* Imports the JSONL text as test_path(name). */
enum status night_import(struct night *n, const char *name, const char *jsonl, struct err *e);
/* Runs the queue. */
enum status night_run(struct night *n, struct err *e);
/* The exported lines with created, prefill_s, decode_s masked; malloc'ed. */
enum status night_export(struct night *n, char **out, struct err *e);
/* The same; NULL when the case has failed. */
char *night_output(struct night *n);

#endif
