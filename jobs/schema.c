/* Tables, indexes and views of a queue file.
 *
 * Version n of the schema is reached by steps[0..n-1], each in the transaction that sets
 * user_version. A step that was released is never edited: a change of the tables is a new step.
 * The comments inside the SQL stay in the file, so that `.schema` explains it. */
#include "jobs/schema.h"

#include <stdio.h>

/* clang-format off */
static const char *const steps[SCHEMA_VERSION] = {
    "CREATE TABLE inputs( -- what was imported: one row a JSONL file, picture or folder\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  path TEXT NOT NULL UNIQUE,           -- absolute\n"
    "  kind TEXT NOT NULL CHECK (kind IN ('lines', 'picture', 'folder')),\n"
    "  bytes INTEGER NOT NULL,\n"
    "  sha256 TEXT NOT NULL,                -- of all its bytes; '' for pictures and folders\n"
    "  options_sha256 TEXT NOT NULL,        -- of the options that shaped its jobs\n"
    "  items INTEGER NOT NULL DEFAULT 0,    -- lines or pictures read so far\n"
    "  mine INTEGER NOT NULL DEFAULT 0,     -- of these, in this queue's shard\n"
    "  complete INTEGER NOT NULL DEFAULT 0, -- 1: all of them\n"
    "  imported_at INTEGER NOT NULL         -- seconds since 1970, as every *_at\n"
    ") STRICT;\n"
    "\n"
    "CREATE TABLE jobs( -- one row a line or picture\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  input_id INTEGER NOT NULL REFERENCES inputs(id),\n"
    "  line INTEGER NOT NULL,               -- from 1; of a folder: number of the picture;\n"
    "                                       -- below 0: gone from its input, has an answer\n"
    "  byte_offset INTEGER NOT NULL,        -- the line in its file\n"
    "  byte_length INTEGER NOT NULL,\n"
    "  custom_id TEXT,                      -- null: a bad line without a legible one\n"
    "  duplicate_of INTEGER,                -- failed: the job that has this custom_id\n"
    "  spec TEXT,                           -- the job as JSON; null: a bad line\n"
    "  params_sha256 TEXT NOT NULL,         -- of spec\n"
    "  text_bytes INTEGER NOT NULL,\n"
    "  n_images INTEGER NOT NULL,\n"
    "  max_tokens INTEGER NOT NULL,\n"
    "  priority INTEGER NOT NULL,           -- higher runs first\n"
    "  place INTEGER NOT NULL,              -- then this: near for jobs that begin alike\n"
    "  state TEXT NOT NULL CHECK (state IN\n"
    "    ('pending', 'running', 'retry_wait', 'done', 'failed', 'cancelled')),\n"
    "  attempt INTEGER NOT NULL DEFAULT 0,  -- tries that ended\n"
    "  fence INTEGER NOT NULL DEFAULT 0,    -- grows with each claim; tells old claims\n"
    "  worker TEXT,\n"
    "  lease_until_ms INTEGER,              -- running: others may take it then\n"
    "  due_ms INTEGER,                      -- retry_wait: not before\n"
    "  UNIQUE (input_id, line)\n"
    ") STRICT;\n"
    "CREATE UNIQUE INDEX jobs_custom_id ON jobs(custom_id)\n"
    "  WHERE custom_id IS NOT NULL AND duplicate_of IS NULL;\n"
    "CREATE INDEX jobs_state ON jobs(state, line);\n"
    "CREATE INDEX jobs_next ON jobs(priority DESC, place, id) WHERE state = 'pending';\n"
    "CREATE INDEX jobs_next_input ON jobs(priority DESC, id) WHERE state = 'pending';\n"
    "\n"
    "CREATE TABLE job_images( -- the pictures of a job, in order\n"
    "  job_id INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,\n"
    "  n INTEGER NOT NULL,                  -- from 0\n"
    "  ref TEXT,                            -- as written; null: inline in the line\n"
    "  path TEXT,                           -- the file that was found; null: inline\n"
    "  sha256 TEXT,                         -- of its bytes at import\n"
    "  bytes INTEGER,                       -- of the file\n"
    "  decode_bytes INTEGER,                -- memory that decoding takes at most\n"
    "  width INTEGER, height INTEGER,       -- after orientation; null: not known yet\n"
    "  orientation INTEGER,                 -- EXIF, 1 to 8\n"
    "  tokens INTEGER,\n"
    "  warnings TEXT,                       -- JSON array of text\n"
    "  PRIMARY KEY (job_id, n)\n"
    ") STRICT, WITHOUT ROWID;\n"
    "CREATE INDEX job_images_sha256 ON job_images(sha256);\n"
    "\n"
    "CREATE TABLE partial( -- what unfinished jobs have so far\n"
    "  job_id INTEGER PRIMARY KEY REFERENCES jobs(id) ON DELETE CASCADE,\n"
    "  tokens BLOB NOT NULL,                -- output tokens, 4 bytes each, little-endian\n"
    "  prefill_s REAL NOT NULL,\n"
    "  decode_s REAL NOT NULL,\n"
    "  stored_at INTEGER NOT NULL\n"
    ") STRICT;\n"
    "\n"
    "CREATE TABLE results( -- one row a finished job, written together with its state\n"
    "  job_id INTEGER PRIMARY KEY REFERENCES jobs(id) ON DELETE CASCADE,\n"
    "  run_id INTEGER REFERENCES runs(id),  -- null: failed before it ran\n"
    "  attempt INTEGER NOT NULL,\n"
    "  code TEXT,                           -- null: an answer; else the error's code\n"
    "  message TEXT,\n"
    "  content TEXT,\n"
    "  reasoning TEXT,\n"
    "  finish_reason TEXT,                  -- stop, length, repetition\n"
    "  prompt_tokens INTEGER NOT NULL,\n"
    "  completion_tokens INTEGER NOT NULL,\n"
    "  prefill_s REAL NOT NULL,\n"
    "  decode_s REAL NOT NULL,\n"
    "  seed TEXT,                           -- of the draws; null: nothing was drawn\n"
    "  finished_at INTEGER NOT NULL,\n"
    "  CHECK ((code IS NULL) = (message IS NULL)),\n"
    "  CHECK (code IS NOT NULL OR (content IS NOT NULL AND finish_reason IS NOT NULL))\n"
    ") STRICT;\n"
    "\n"
    "CREATE TABLE attempts( -- one row each time a try ended; only ever added to\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  job_id INTEGER NOT NULL,\n"
    "  attempt INTEGER NOT NULL,\n"
    "  fence INTEGER NOT NULL,\n"
    "  worker TEXT,\n"
    "  code TEXT,                           -- null: it gave the answer\n"
    "  message TEXT,\n"
    "  tokens INTEGER NOT NULL,\n"
    "  ended_at INTEGER NOT NULL\n"
    ") STRICT;\n"
    "CREATE INDEX attempts_job ON attempts(job_id);\n"
    "\n"
    "CREATE TABLE settings( -- what results depend on beside the job; may not change on resume\n"
    "  name TEXT PRIMARY KEY,\n"
    "  value TEXT NOT NULL\n"
    ") STRICT, WITHOUT ROWID;\n"
    "\n"
    "CREATE TABLE speeds( -- measured once a machine and model, corrected by runs; may be deleted\n"
    "  machine TEXT PRIMARY KEY,\n"
    "  value TEXT NOT NULL,\n"
    "  measured_at INTEGER NOT NULL\n"
    ") STRICT, WITHOUT ROWID;\n"
    "\n"
    "CREATE TABLE runs( -- one row a run, kept up to date while it works\n"
    "  id INTEGER PRIMARY KEY,\n"
    "  worker TEXT NOT NULL,\n"
    "  model TEXT NOT NULL,                 -- its name\n"
    "  model_sha256 TEXT NOT NULL,\n"
    "  settings TEXT NOT NULL,              -- those that results depend on\n"
    "  machine TEXT NOT NULL,               -- kernels, threads, memory\n"
    "  started_at INTEGER NOT NULL,\n"
    "  updated_at INTEGER NOT NULL,\n"
    "  ended_at INTEGER,\n"
    "  exit_code INTEGER,\n"
    "  done INTEGER NOT NULL DEFAULT 0,\n"
    "  failed INTEGER NOT NULL DEFAULT 0,\n"
    "  prompt_rows INTEGER NOT NULL DEFAULT 0, -- computed, also of jobs that did not end\n"
    "  completion_tokens INTEGER NOT NULL DEFAULT 0,\n"
    "  sweeps INTEGER NOT NULL DEFAULT 0,\n"
    "  bytes_read INTEGER NOT NULL DEFAULT 0,\n"
    "  seconds REAL NOT NULL DEFAULT 0\n"
    ") STRICT;\n"
    "\n"
    "CREATE VIEW job_counts AS\n"
    "  SELECT state, count(*) AS jobs FROM jobs WHERE line > 0 GROUP BY state;\n"
    "CREATE VIEW answers AS\n"
    "  SELECT j.id AS job, j.custom_id, r.content, r.reasoning, r.finish_reason, r.prompt_tokens,\n"
    "         r.completion_tokens, r.prefill_s, r.decode_s,\n"
    "         datetime(r.finished_at, 'unixepoch') AS finished\n"
    "  FROM jobs j JOIN results r ON r.job_id = j.id\n"
    "  WHERE r.code IS NULL AND j.line > 0 ORDER BY j.input_id, j.line;\n"
    "CREATE VIEW failures AS\n"
    "  SELECT j.id AS job, j.custom_id, i.path AS input, j.line, r.code, r.message, r.attempt\n"
    "  FROM jobs j JOIN results r ON r.job_id = j.id JOIN inputs i ON i.id = j.input_id\n"
    "  WHERE r.code IS NOT NULL AND j.line > 0 ORDER BY j.input_id, j.line;\n"
    "CREATE VIEW failure_counts AS\n"
    "  SELECT code, count(*) AS jobs FROM results WHERE code IS NOT NULL GROUP BY code;\n"
    "CREATE VIEW image_answers AS\n"
    "  SELECT m.path, m.ref, m.sha256, m.width, m.height, j.custom_id, r.content\n"
    "  FROM job_images m JOIN jobs j ON j.id = m.job_id JOIN results r ON r.job_id = j.id\n"
    "  WHERE r.code IS NULL AND j.line > 0 ORDER BY j.input_id, j.line, m.n;\n",

    "CREATE TABLE expert_use( -- which experts kinds of prompts used: a guess, may be deleted\n"
    "  kind INTEGER PRIMARY KEY,\n"
    "  model_sha256 TEXT NOT NULL,\n"
    "  record BLOB NOT NULL\n"
    ") STRICT;\n",

    "ALTER TABLE job_images ADD COLUMN mtime_ns INTEGER; -- of the file at import, since 1970\n",

    "ALTER TABLE jobs ADD COLUMN tried INTEGER NOT NULL DEFAULT 0; -- attempt at the last retry\n",
};
/* clang-format on */

static enum status inspect(struct db *db, int64_t *version, struct err *e)
{
    int64_t app = 0, tables = 0;
    *version = 0;
    enum status rc = db_int(db, &app, 0, e, "PRAGMA application_id", "");
    if (!rc) rc = db_int(db, version, 0, e, "PRAGMA user_version", "");
    if (!rc) rc = db_int(db, &tables, 0, e, "SELECT count(*) FROM sqlite_schema", "");
    if (rc) return rc;
    if (app == SCHEMA_APPLICATION_ID && *version > SCHEMA_VERSION)
        return err_set(e, E_DB, "%s has queue version %d, this program knows up to %d", db_path(db),
                       (int)*version, SCHEMA_VERSION);
    if (app != SCHEMA_APPLICATION_ID && (app || tables || *version))
        return err_set(e, E_DB, "%s is a database of another program", db_path(db));
    return OK;
}

enum status schema_check(struct db *db, struct err *e)
{
    int64_t version;
    enum status rc = inspect(db, &version, e);
    if (!rc && version != SCHEMA_VERSION)
        rc = err_set(e, E_DB, "%s is not a queue file of version %d", db_path(db), SCHEMA_VERSION);
    return rc;
}

static enum status set_pragma(struct db *db, const char *name, int64_t value, struct err *e)
{
    char sql[64];
    snprintf(sql, sizeof sql, "PRAGMA %s=%lld", name, (long long)value);
    return db_exec(db, sql, e);
}

enum status schema_apply(struct db *db, struct err *e)
{
    int64_t version;
    enum status rc = inspect(db, &version, e);
    if (rc || version == SCHEMA_VERSION) return rc;

    rc = db_begin(db, "schema", e);
    if (rc) return rc;
    /* Another process may have been faster. */
    rc = inspect(db, &version, e);
    if (rc) goto out;
    for (; version < SCHEMA_VERSION; version++) {
        rc = db_exec(db, steps[version], e);
        if (!rc) rc = set_pragma(db, "user_version", version + 1, e);
        if (rc) goto out;
    }
    rc = set_pragma(db, "application_id", SCHEMA_APPLICATION_ID, e);
    if (!rc) rc = db_commit(db, e);
out:
    if (rc) db_rollback(db);
    return rc;
}
