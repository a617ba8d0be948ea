-- A queue file as version 3 of the schema left it: one job done, one begun, one waiting, three bad lines.
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE inputs( -- what was imported: one row a JSONL file, picture or folder
  id INTEGER PRIMARY KEY,
  path TEXT NOT NULL UNIQUE,           -- absolute
  kind TEXT NOT NULL CHECK (kind IN ('lines', 'picture', 'folder')),
  bytes INTEGER NOT NULL,
  sha256 TEXT NOT NULL,                -- of all its bytes; '' for pictures and folders
  options_sha256 TEXT NOT NULL,        -- of the options that shaped its jobs
  items INTEGER NOT NULL DEFAULT 0,    -- lines or pictures read so far
  mine INTEGER NOT NULL DEFAULT 0,     -- of these, in this queue's shard
  complete INTEGER NOT NULL DEFAULT 0, -- 1: all of them
  imported_at INTEGER NOT NULL         -- seconds since 1970, as every *_at
) STRICT;
INSERT INTO inputs VALUES(1,'/data/jobs.jsonl','lines',301,'4f86d4c8cadf4cf7d84b6c3f2ad3fc02c926df4b2288f989f770f22946cebf40','70d0a2f87830afc60fba5bcb2a65a1a3c913f0ba61759ee9f16e9725d5df7179',6,6,1,1796131949);
CREATE TABLE jobs( -- one row a line or picture
  id INTEGER PRIMARY KEY,
  input_id INTEGER NOT NULL REFERENCES inputs(id),
  line INTEGER NOT NULL,               -- from 1; of a folder: number of the picture;
                                       -- below 0: gone from its input, has an answer
  byte_offset INTEGER NOT NULL,        -- the line in its file
  byte_length INTEGER NOT NULL,
  custom_id TEXT,                      -- null: a bad line without a legible one
  duplicate_of INTEGER,                -- failed: the job that has this custom_id
  spec TEXT,                           -- the job as JSON; null: a bad line
  params_sha256 TEXT NOT NULL,         -- of spec
  text_bytes INTEGER NOT NULL,
  n_images INTEGER NOT NULL,
  max_tokens INTEGER NOT NULL,
  priority INTEGER NOT NULL,           -- higher runs first
  place INTEGER NOT NULL,              -- then this: near for jobs that begin alike
  state TEXT NOT NULL CHECK (state IN
    ('pending', 'running', 'retry_wait', 'done', 'failed', 'cancelled')),
  attempt INTEGER NOT NULL DEFAULT 0,  -- tries that ended
  fence INTEGER NOT NULL DEFAULT 0,    -- grows with each claim; tells old claims
  worker TEXT,
  lease_until_ms INTEGER,              -- running: others may take it then
  due_ms INTEGER,                      -- retry_wait: not before
  UNIQUE (input_id, line)
) STRICT;
INSERT INTO jobs VALUES(1,1,1,0,55,'done',NULL,'{"custom_id":"done","form":"short","messages":[{"role":"user","parts":["What is 2 + 3?"]}],"images":[],"max_tokens":20,"temperature":0,"top_p":1,"top_k":0,"seed":2708671079318867,"stop":[],"reasoning_effort":"none","priority":0}','2d4d7841eac4c915ac523079f120250440d8b4359f89170a2134254da0b0d7eb',14,0,20,0,557056159294453,'done',1,1,NULL,NULL,NULL);
INSERT INTO jobs VALUES(2,1,2,56,87,'begun',NULL,'{"custom_id":"begun","form":"short","messages":[{"role":"user","parts":["Spell the word cat and count from one to ten."]}],"images":[],"max_tokens":60,"temperature":0,"top_p":1,"top_k":0,"seed":4174255649254779,"stop":[],"reasoning_effort":"none","priority":0}','1bed38830ffe665108aa714fcc0f648f467948619fc06c70e9ffdb719625fb74',45,0,60,0,1374540617255364,'running',0,1,'host:1:1',1,NULL);
INSERT INTO jobs VALUES(3,1,3,144,58,'waiting',NULL,'{"custom_id":"waiting","form":"short","messages":[{"role":"user","parts":["What is 4 * 2?"]}],"images":[],"max_tokens":20,"temperature":0,"top_p":1,"top_k":0,"seed":4035763867029472,"stop":[],"reasoning_effort":"none","priority":0}','3d0894990e137848e09cb743ef3bfdc3787c20d0e5d5b17ccb9be5c1859d6e73',14,0,20,0,1870943113276747,'pending',0,0,NULL,NULL,NULL);
INSERT INTO jobs VALUES(4,1,4,203,7,NULL,NULL,NULL,'',0,0,0,0,0,'failed',0,0,NULL,NULL,NULL);
INSERT INTO jobs VALUES(5,1,5,211,30,'done',1,'{"custom_id":"done","form":"short","messages":[{"role":"user","parts":["twice"]}],"images":[],"max_tokens":1024,"temperature":0,"top_p":1,"top_k":0,"seed":2708671079318867,"stop":[],"reasoning_effort":"none","priority":0}','3821c7101adf84eb529d36a1bee1bd4cdb6b76817cdc46535a3c3d1dc5434775',5,0,1024,0,591051094385715,'failed',0,0,NULL,NULL,NULL);
INSERT INTO jobs VALUES(6,1,6,242,58,'picture',NULL,'{"custom_id":"picture","form":"short","messages":[{"role":"user","parts":[0,"What is it?"]}],"images":[{"path":"none.png"}],"max_tokens":1024,"temperature":0,"top_p":1,"top_k":0,"seed":4916058141779938,"stop":[],"reasoning_effort":"none","priority":0}','d7704c5738c7ca24117d2ddd925412fd74a601aa064976b8c381f5a539395709',11,1,1024,0,1391688794087853,'failed',0,0,NULL,NULL,NULL);
CREATE TABLE job_images( -- the pictures of a job, in order
  job_id INTEGER NOT NULL REFERENCES jobs(id) ON DELETE CASCADE,
  n INTEGER NOT NULL,                  -- from 0
  ref TEXT,                            -- as written; null: inline in the line
  path TEXT,                           -- the file that was found; null: inline
  sha256 TEXT,                         -- of its bytes at import
  bytes INTEGER,                       -- of the file
  decode_bytes INTEGER,                -- memory that decoding takes at most
  width INTEGER, height INTEGER,       -- after orientation; null: not known yet
  orientation INTEGER,                 -- EXIF, 1 to 8
  tokens INTEGER,
  warnings TEXT, mtime_ns INTEGER,                       -- JSON array of text
  PRIMARY KEY (job_id, n)
) STRICT, WITHOUT ROWID;
INSERT INTO job_images VALUES(6,0,'none.png',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE partial( -- what unfinished jobs have so far
  job_id INTEGER PRIMARY KEY REFERENCES jobs(id) ON DELETE CASCADE,
  tokens BLOB NOT NULL,                -- output tokens, 4 bytes each, little-endian
  prefill_s REAL NOT NULL,
  decode_s REAL NOT NULL,
  stored_at INTEGER NOT NULL
) STRICT;
INSERT INTO partial VALUES(2,X'4100000042000000',0.050000000000000002775,0.029999999999999998889,1796131951);
CREATE TABLE results( -- one row a finished job, written together with its state
  job_id INTEGER PRIMARY KEY REFERENCES jobs(id) ON DELETE CASCADE,
  run_id INTEGER REFERENCES runs(id),  -- null: failed before it ran
  attempt INTEGER NOT NULL,
  code TEXT,                           -- null: an answer; else the error's code
  message TEXT,
  content TEXT,
  reasoning TEXT,
  finish_reason TEXT,                  -- stop, length, repetition
  prompt_tokens INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL,
  prefill_s REAL NOT NULL,
  decode_s REAL NOT NULL,
  seed TEXT,                           -- of the draws; null: nothing was drawn
  finished_at INTEGER NOT NULL,
  CHECK ((code IS NULL) = (message IS NULL)),
  CHECK (code IS NOT NULL OR (content IS NOT NULL AND finish_reason IS NOT NULL))
) STRICT;
INSERT INTO results VALUES(1,1,1,NULL,NULL,'5','','stop',29,8,0.050909949000924825668,0.036410851998880389146,'2708671079318867',1796131951);
INSERT INTO results VALUES(4,NULL,0,'invalid_json','byte 1: expected a JSON value, found ''n''',NULL,NULL,NULL,0,0,0.0,0.0,NULL,1796131949);
INSERT INTO results VALUES(5,NULL,0,'duplicate_id','the id "done" is on line 1 and again on line 5',NULL,NULL,NULL,0,0,0.0,0.0,NULL,1796131949);
INSERT INTO results VALUES(6,NULL,0,'image_missing','no such file: none.png',NULL,NULL,NULL,0,0,0.0,0.0,NULL,1796131949);
CREATE TABLE attempts( -- one row each time a try ended; only ever added to
  id INTEGER PRIMARY KEY,
  job_id INTEGER NOT NULL,
  attempt INTEGER NOT NULL,
  fence INTEGER NOT NULL,
  worker TEXT,
  code TEXT,                           -- null: it gave the answer
  message TEXT,
  tokens INTEGER NOT NULL,
  ended_at INTEGER NOT NULL
) STRICT;
INSERT INTO attempts VALUES(1,1,1,1,'host:1:1',NULL,NULL,8,1796131951);
CREATE TABLE settings( -- what results depend on beside the job; may not change on resume
  name TEXT PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO settings VALUES('activations','f32');
INSERT INTO settings VALUES('exif','on');
INSERT INTO settings VALUES('isa','avx2');
INSERT INTO settings VALUES('lenient_images','off');
INSERT INTO settings VALUES('max_patches','0');
INSERT INTO settings VALUES('model','demo-model');
INSERT INTO settings VALUES('model_sha256','ce23463c9597e0e1f4882bb8af237f98711fa21160123f311590261d7e5bc37c');
CREATE TABLE speeds( -- measured once a machine and model, corrected by runs; may be deleted
  machine TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  measured_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE runs( -- one row a run, kept up to date while it works
  id INTEGER PRIMARY KEY,
  worker TEXT NOT NULL,
  model TEXT NOT NULL,                 -- its name
  model_sha256 TEXT NOT NULL,
  settings TEXT NOT NULL,              -- those that results depend on
  machine TEXT NOT NULL,               -- kernels, threads, memory
  started_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  ended_at INTEGER,
  exit_code INTEGER,
  done INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  prompt_rows INTEGER NOT NULL DEFAULT 0, -- computed, also of jobs that did not end
  completion_tokens INTEGER NOT NULL DEFAULT 0,
  sweeps INTEGER NOT NULL DEFAULT 0,
  bytes_read INTEGER NOT NULL DEFAULT 0,
  seconds REAL NOT NULL DEFAULT 0
) STRICT;
INSERT INTO runs VALUES(1,'host:1:1','demo-model','ce23463c9597e0e1f4882bb8af237f98711fa21160123f311590261d7e5bc37c','activations=f32 max_patches=0 exif=on lenient_images=off','avx2, 2 threads, 4.0 GB',1796131951,1796131951,1796131951,7,1,0,29,8,7,1423104,0.17507148900040192529);
CREATE TABLE expert_use( -- which experts kinds of prompts used: a guess, may be deleted
  kind INTEGER PRIMARY KEY,
  model_sha256 TEXT NOT NULL,
  record BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX jobs_custom_id ON jobs(custom_id)
  WHERE custom_id IS NOT NULL AND duplicate_of IS NULL;
CREATE INDEX jobs_state ON jobs(state, line);
CREATE INDEX jobs_next ON jobs(priority DESC, place, id) WHERE state = 'pending';
CREATE INDEX jobs_next_input ON jobs(priority DESC, id) WHERE state = 'pending';
CREATE INDEX job_images_sha256 ON job_images(sha256);
CREATE INDEX attempts_job ON attempts(job_id);
CREATE VIEW job_counts AS
  SELECT state, count(*) AS jobs FROM jobs WHERE line > 0 GROUP BY state;
CREATE VIEW answers AS
  SELECT j.id AS job, j.custom_id, r.content, r.reasoning, r.finish_reason, r.prompt_tokens,
         r.completion_tokens, r.prefill_s, r.decode_s,
         datetime(r.finished_at, 'unixepoch') AS finished
  FROM jobs j JOIN results r ON r.job_id = j.id
  WHERE r.code IS NULL AND j.line > 0 ORDER BY j.input_id, j.line;
CREATE VIEW failures AS
  SELECT j.id AS job, j.custom_id, i.path AS input, j.line, r.code, r.message, r.attempt
  FROM jobs j JOIN results r ON r.job_id = j.id JOIN inputs i ON i.id = j.input_id
  WHERE r.code IS NOT NULL AND j.line > 0 ORDER BY j.input_id, j.line;
CREATE VIEW failure_counts AS
  SELECT code, count(*) AS jobs FROM results WHERE code IS NOT NULL GROUP BY code;
CREATE VIEW image_answers AS
  SELECT m.path, m.ref, m.sha256, m.width, m.height, j.custom_id, r.content
  FROM job_images m JOIN jobs j ON j.id = m.job_id JOIN results r ON r.job_id = j.id
  WHERE r.code IS NULL AND j.line > 0 ORDER BY j.input_id, j.line, m.n;
COMMIT;
PRAGMA application_id=0x6e736a71;
PRAGMA user_version=3;
