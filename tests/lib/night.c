/* A night without a model. */
#include "tests/lib/night.h"

#include "jobs/export.h"
#include "jobs/runs.h"
#include "tests/lib/jobs.h"
#include "tests/lib/test.h"

#include <ctype.h>

bool night_begin(struct night *n)
{
    struct err e;
    *n = (struct night){.db = NULL};
    mem_init(&n->mem, 0);
    enum status rc = config_load(&n->config, NIGHT_MODEL, &e);
    if (!rc) rc = tok_open(&n->tok, NIGHT_MODEL, n->config.vocab, &e);
    if (rc) test_failed(__FILE__, __LINE__, "%s", e.text);
    fake_vision(&n->mem, n->config.hidden);
    n->engine = (struct fake_engine_opts){.sequences = 3,
                                          .context = 4000,
                                          .stop_id = n->config.eos[0],
                                          .length = 20,
                                          .first_id = 65,
                                          .ids = 26};
    n->o = (struct pipeline_opts){
        .worker = {.name = "test", .lease_ms = 60000},
        .alone = true,
        .sequences = 3,
        .prepare = {.mem = &n->mem,
                    .config = &n->config,
                    .tok = n->tok,
                    .encode = fake_encode,
                    .vision = (struct vision *)(void *)&n->encoded,
                    .image_bytes = 1 << 20,
                    .model_name = "demo-model"},
        .retries = 2,
        .checkpoint_s = 1000,
    };
    return !rc;
}

bool night_open(struct night *n, const char *db_name)
{
    struct err e;
    if (!night_begin(n)) return false;
    n->db = n->o.db = jobs_open(db_name, NULL);
    /* Durability is tested elsewhere; here it would only take time. */
    if (n->db && db_exec(n->db, "PRAGMA synchronous=OFF", &e))
        test_failed(__FILE__, __LINE__, "%s", e.text);
    return n->db != NULL;
}

void night_close(struct night *n)
{
    db_close(n->db);
    tok_close(n->tok);
    mem_close(&n->mem);
}

enum status night_import(struct night *n, const char *name, const char *jsonl, struct err *e)
{
    const char *path = test_path(name);
    test_write(path, jsonl, strlen(jsonl));
    struct import_opts o = {.paths = &path, .n_paths = 1, .row = {.mem = &n->mem}};
    return import_files(n->db, &o, &n->counts, e);
}

enum status night_run(struct night *n, struct err *e)
{
    struct run_info info = {.worker = "test",
                            .model = "demo-model",
                            .model_sha256 = "0123",
                            .settings = "exact",
                            .machine = "none"};
    enum status rc = run_begin(n->db, &info, &n->o.run_id, e);
    if (rc) return rc;
    n->o.engine = fake_engine_open(&n->engine);
    rc = pipeline_run(&n->o, &n->report, e);
    fake_engine_close(&n->o.engine);
    return rc;
}

/* Replaces the number after each "name": by 0. */
static void mask(char *text, const char *name)
{
    char *in = text, *at;
    while ((at = strstr(in, name))) {
        char *from = at + strlen(name), *to = from;
        while (isdigit((unsigned char)*to) || *to == '.') to++;
        *from++ = '0';
        memmove(from, to, strlen(to) + 1);
        in = from;
    }
}

enum status night_export(struct night *n, char **out, struct err *e)
{
    struct export_counts c;
    const char *path = test_path("out.jsonl");
    *out = NULL;
    enum status rc = export_files(n->db, &(struct export_request){.path = path}, &c, e);
    if (rc) return rc;
    *out = test_read(path, NULL);
    if (!*out) return err_set(e, E_IO, "no output");
    mask(*out, "\"created\":");
    mask(*out, "\"prefill_s\":");
    mask(*out, "\"decode_s\":");
    return OK;
}

char *night_output(struct night *n)
{
    struct err e;
    char *out;
    if (night_export(n, &out, &e)) test_failed(__FILE__, __LINE__, "%s", e.text);
    return out;
}
